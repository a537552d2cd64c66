"""`slipway tune status`: prints the progress of an experiment, once or until it has ended."""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from serving import clock, errors
from serving.cli.exits import Exit
from serving.cli.options import Watch, with_target
from serving.cli.output import live
from serving.cli.output.formats import OutputFormat
from serving.cli.output.printing import print_objects
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.cli.tune import lines, summary
from serving.objects import Object
from serving.resources import kinds, names

if TYPE_CHECKING:
    from serving.kube import Kube


POLL_SECONDS = 0.5
RETRY_SECONDS = 1.0

ExperimentName = Annotated[str, typer.Argument(metavar="NAME", help="The ProfilingExperiment.")]


@with_target
def status(
    target: Target,
    name: ExperimentName,
    watch: Watch = False,
    output: Annotated[
        Literal["table", "json", "yaml"], typer.Option("-o", "--output", help="Output format.")
    ] = "table",
) -> None:
    """Show progress, the best spec so far and the running trials."""
    if watch and output != "table":
        raise errors.UserError(f"-o {output} cannot be combined with -w")

    async def work(kube: "Kube") -> str:
        if watch:
            await read(kube, target.namespace, name)  # fails without the API, for which `follow` waits
            return await follow(kube, target.namespace, name)
        experiment, trials = await read(kube, target.namespace, name)
        if output == "table":
            print(summary.status(experiment, trials, clock.now()))
        else:
            print_objects([experiment], OutputFormat(output), single=True)
        return ""

    finish(with_kube(target.kubeconfig, work), name)


def finish(phase: str, name: str) -> None:
    """Print the next commands, or exit with 1 if `phase` is Failed; do nothing if it is empty."""
    if phase == "Failed":
        sys.exit(Exit.FAILED)
    if phase:
        print(
            f"Explain it with `slipway tune report {name}`, apply it with `slipway tune apply {name}`.",
            file=sys.stderr,
        )


async def read(kube: "Kube", namespace: str, name: str) -> tuple[Object, list[Object]]:
    """Return an experiment and its trials."""
    experiment = await kube.get(kinds.PROFILING_EXPERIMENT, namespace, name)
    own = f"{names.EXPERIMENT_LABEL}={name}"
    return experiment, (await kube.list(kinds.TRIAL, namespace, labels=own)).items


async def follow(kube: "Kube", namespace: str, name: str) -> str:
    """Print an experiment until it has ended, across restarts of the API; return its last phase.

    A terminal shows a table that is updated; other outputs get one line per change.

    Raises:
        errors.NotFound: the experiment does not exist, or was deleted.
    """
    try:
        if live.is_terminal():
            await live.show(_tables(kube, namespace, name))
            experiment, _ = await _read_again(kube, namespace, name)
            return summary.phase(experiment)
        return await _in_lines(kube, namespace, name)
    except asyncio.CancelledError:
        print(f"The experiment continues; `slipway tune stop {name}` stops it.", file=sys.stderr)
        raise


async def _tables(kube: "Kube", namespace: str, name: str) -> AsyncIterator[str]:
    while True:
        experiment, trials = await _read_again(kube, namespace, name)
        yield summary.status(experiment, trials, clock.now())
        if summary.has_ended(experiment):
            return
        await asyncio.sleep(POLL_SECONDS)


async def _in_lines(kube: "Kube", namespace: str, name: str) -> str:
    printed: dict[str, str] = {}
    while True:
        experiment, trials = await _read_again(kube, namespace, name)
        for line in lines.new(printed, experiment, trials):
            print(lines.text(line, experiment, clock.now()), flush=True)
            printed[line.subject] = line.text
        if summary.has_ended(experiment):
            return summary.phase(experiment)
        await asyncio.sleep(POLL_SECONDS)


async def _read_again(kube: "Kube", namespace: str, name: str) -> tuple[Object, list[Object]]:
    while True:
        try:
            return await read(kube, namespace, name)
        except errors.Unavailable:
            await asyncio.sleep(RETRY_SECONDS)
