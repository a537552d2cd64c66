"""`slipway tune status`: how far an experiment is, once or until it has ended."""

import asyncio
import sys
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from serving import clock, errors
from serving.cli.exits import Exit
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


def status(name: str, meant: Target, output: str, *, watch: bool) -> None:
    """Print an experiment, or follow it to its end.

    Raises:
        errors.UserError: `watch` goes with a table only.
    """
    if watch and output != "table":
        raise errors.UserError(f"-w follows in lines: leave out -o {output}, or -w")

    async def work(kube: "Kube") -> str:
        if watch:
            return await follow(kube, meant.namespace, name)
        experiment, trials = await read(kube, meant.namespace, name)
        if output == "table":
            print(summary.status(experiment, trials, clock.now()))
        else:
            print_objects([experiment], output, single=True)
        return ""

    ended(with_kube(meant.kubeconfig, work), name)


def ended(phase: str, name: str) -> None:
    """Say what to do with what was found, or exit as a failure does; `phase` is empty where nobody waited for it."""
    if phase == "Failed":
        raise typer.Exit(Exit.FAILED)
    if phase:
        print(
            f"Explain it with `slipway tune report {name}`, apply it with `slipway tune apply {name}`.",
            file=sys.stderr,
        )


async def read(kube: "Kube", namespace: str, name: str) -> tuple[Object, list[Object]]:
    """Return an experiment with its trials."""
    experiment = await kube.get(kinds.PROFILING_EXPERIMENT, namespace, name)
    own = f"{names.EXPERIMENT_LABEL}={name}"
    return experiment, (await kube.list(kinds.TRIAL, namespace, labels=own)).items


async def follow(kube: "Kube", namespace: str, name: str) -> str:
    """Show an experiment until it has ended; returns its last phase. An API that restarts is waited for.

    On a terminal the table stays current; anything else gets a line at each change.

    Raises:
        errors.NotFound: it is not there, or not any more.
    """
    console = Console()
    try:
        if console.is_terminal:
            return await _live(kube, namespace, name, console)
        return await _in_lines(kube, namespace, name)
    except asyncio.CancelledError:
        print(f"The experiment goes on; `slipway tune stop {name}` stops it.", file=sys.stderr)
        raise


async def _live(kube: "Kube", namespace: str, name: str, console: Console) -> str:
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            experiment, trials = await _read_again(kube, namespace, name)
            shown = summary.status(experiment, trials, clock.now())
            live.update(Text(shown, no_wrap=True, overflow="ellipsis"), refresh=True)
            if summary.has_ended(experiment):
                return summary.phase(experiment)
            await asyncio.sleep(POLL_SECONDS)


async def _in_lines(kube: "Kube", namespace: str, name: str) -> str:
    told: dict[str, str] = {}
    while True:
        experiment, trials = await _read_again(kube, namespace, name)
        for line in lines.new(told, experiment, trials):
            print(lines.text(line, experiment, clock.now()), flush=True)
            told[line.about] = line.text
        if summary.has_ended(experiment):
            return summary.phase(experiment)
        await asyncio.sleep(POLL_SECONDS)


async def _read_again(kube: "Kube", namespace: str, name: str) -> tuple[Object, list[Object]]:
    while True:
        try:
            return await read(kube, namespace, name)
        except errors.Unavailable:
            await asyncio.sleep(RETRY_SECONDS)
