"""`slipway autoscale status` and `explain`: decisions of the autoscaler and their reasons."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from serving import clock, errors
from serving.cli.autoscale import explanation, lookup, summary
from serving.cli.autoscale.lookup import ScalerName
from serving.cli.options import with_target
from serving.cli.output import live
from serving.cli.output.formats import OutputFormat
from serving.cli.output.printing import print_objects, print_rows
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.objects import Object

if TYPE_CHECKING:
    from serving.kube import Kube

POLL_SECONDS = 1.0
"""Seconds between two reads: the autoscaler decides every few seconds."""


@with_target
def status(
    target: Target,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="An Autoscaler, or INFERENCE/PREDICTOR; without: all of the namespace."
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Follow changes until Ctrl-C.")] = False,
    output: Annotated[
        Literal["table", "json", "yaml"], typer.Option("-o", "--output", help="Output format.")
    ] = "table",
) -> None:
    """Show replicas, load, forecast and the binding rule."""
    if watch and output != "table":
        raise errors.UserError(f"-w follows in lines: leave out -o {output}, or -w")

    async def work(kube: "Kube") -> None:
        scalers = await lookup.read(kube, target.namespace, name)
        if watch:
            await _follow(kube, target.namespace, name)
            return
        if output == "table":
            rows = [summary.row(scaler) for scaler in sorted(scalers, key=summary.name)]
            print_rows(list(summary.HEADERS), rows, target.namespace)
        else:
            print_objects(scalers, OutputFormat(output), single=name is not None)

    with_kube(target.kubeconfig, work)


@with_target
def explain(target: Target, name: ScalerName) -> None:
    """Say why the count is what it is, and what is expected next."""

    async def work(kube: "Kube") -> None:
        scaler, *_ = await lookup.read(kube, target.namespace, name)
        print(explanation.explanation(scaler, clock.now()))

    with_kube(target.kubeconfig, work)


async def _follow(kube: "Kube", namespace: str, name: str | None) -> None:
    """Print Autoscalers until interrupted, also through restarts of the API.

    A terminal shows a table that is updated; other outputs get one line per change.

    Raises:
        errors.NotFound: the named Autoscaler does not exist, or was deleted.
    """
    if not live.is_terminal():
        await _in_lines(kube, namespace, name)
        return

    async def texts() -> AsyncIterator[str]:
        while True:
            scalers = await _read_again(kube, namespace, name)
            yield summary.status(scalers) if scalers else "no Autoscaler yet"
            await asyncio.sleep(POLL_SECONDS)

    await live.show(texts())


async def _in_lines(kube: "Kube", namespace: str, name: str | None) -> None:
    """Print a line for each change of an Autoscaler."""
    last: dict[str, str] = {}
    while True:
        scalers = {summary.name(s): s for s in await _read_again(kube, namespace, name)}
        for scaler_name in [n for n in last if n not in scalers]:
            del last[scaler_name]
            print(f"{scaler_name}: deleted", flush=True)
        for scaler_name, scaler in sorted(scalers.items()):
            line = summary.line(scaler)
            if last.get(scaler_name) != line:
                print(f"{clock.rfc3339(clock.now())} {line}", flush=True)
                last[scaler_name] = line
        await asyncio.sleep(POLL_SECONDS)


async def _read_again(kube: "Kube", namespace: str, name: str | None) -> list[Object]:
    """Return the Autoscalers once the API is available."""
    while True:
        try:
            return await lookup.read(kube, namespace, name)
        except errors.Unavailable:
            await asyncio.sleep(POLL_SECONDS)
