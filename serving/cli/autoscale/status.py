"""`slipway autoscale status` and `explain`: what the autoscaler does, and why."""

import asyncio
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from serving import clock, errors
from serving.cli.autoscale import explanation, lookup, summary
from serving.cli.output.printing import print_objects, print_rows
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.objects import Object

if TYPE_CHECKING:
    from serving.kube import Kube

POLL_SECONDS = 1.0
"""Between two looks: the autoscaler decides every few seconds."""


def status(name: str | None, meant: Target, output: str, *, watch: bool) -> None:
    """Print Autoscalers, or follow them until interrupted.

    Raises:
        errors.UserError: `watch` goes with a table only.
    """
    if watch and output != "table":
        raise errors.UserError(f"-w follows in lines: leave out -o {output}, or -w")

    async def work(kube: "Kube") -> None:
        if watch:
            await _follow(kube, meant.namespace, name)
            return
        scalers = await lookup.read(kube, meant.namespace, name)
        if output == "table":
            rows = [summary.row(scaler) for scaler in sorted(scalers, key=summary.name)]
            print_rows(list(summary.HEADERS), rows, meant.namespace)
        else:
            print_objects(scalers, output, single=name is not None)

    with_kube(meant.kubeconfig, work)


def explain(name: str, meant: Target) -> None:
    """Print why one is where it is."""

    async def work(kube: "Kube") -> None:
        scaler, *_ = await lookup.read(kube, meant.namespace, name)
        print(explanation.explanation(scaler, clock.now()))

    with_kube(meant.kubeconfig, work)


async def _follow(kube: "Kube", namespace: str, name: str | None) -> None:
    """Show them until interrupted: on a terminal one table, else a line at each change. An API that restarts is waited for.

    Raises:
        errors.NotFound: the one that is meant is not there, or not any more.
    """
    console = Console()
    if not console.is_terminal:
        await _in_lines(kube, namespace, name)
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            scalers = await _read_again(kube, namespace, name)
            shown = summary.status(scalers) if scalers else "no Autoscaler yet"
            live.update(Text(shown, no_wrap=True, overflow="ellipsis"), refresh=True)
            await asyncio.sleep(POLL_SECONDS)


async def _in_lines(kube: "Kube", namespace: str, name: str | None) -> None:
    last: dict[str, str] = {}
    while True:
        scalers = {summary.name(s): s for s in await _read_again(kube, namespace, name)}
        for known in [known for known in last if known not in scalers]:
            del last[known]
            print(f"{known}: deleted", flush=True)
        for known, scaler in sorted(scalers.items()):
            line = summary.line(scaler)
            if last.get(known) != line:
                print(f"{clock.rfc3339(clock.now())} {line}", flush=True)
                last[known] = line
        await asyncio.sleep(POLL_SECONDS)


async def _read_again(kube: "Kube", namespace: str, name: str | None) -> list[Object]:
    while True:
        try:
            return await lookup.read(kube, namespace, name)
        except errors.Unavailable:
            await asyncio.sleep(POLL_SECONDS)
