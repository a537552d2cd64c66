"""`slipway demo`: where it runs and how it ends; `demo_story` has the steps."""

import asyncio
import signal
import tempfile
from pathlib import Path

import typer

from serving import errors
from serving.cli.demo.console import Story
from serving.cli.demo.stack import Stack
from serving.cli.demo.story import tell
from serving.cli.exits import Exit
from serving.data_dir import DataDir

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def demo(data_dir: Path | None, *, keep: bool) -> None:
    """Run the demo in this directory, or in a temporary one.

    Raises:
        errors.UserError: the directory is not empty, or a step could not be done.
        typer.Exit: a check failed (1), or a signal came (130).
    """
    if data_dir is not None and data_dir.exists() and any(data_dir.iterdir()):
        raise errors.UserError(f"{data_dir} is not empty; the demo wants a directory of its own")
    with Story() as story:
        done = asyncio.run(_until_signal(story, data_dir, keep=keep))
    if not done:
        raise typer.Exit(Exit.INTERRUPTED)
    if story.failed:
        raise typer.Exit(Exit.FAILED)


async def _until_signal(story: Story, data_dir: Path | None, *, keep: bool) -> bool:
    """Tell the story to its end, or until a signal; then stop what was started, which no signal interrupts."""
    root = data_dir or Path(tempfile.mkdtemp(prefix="slipway-demo-"))
    stack = Stack(DataDir(root.absolute()))
    telling = asyncio.ensure_future(tell(story, stack, keep=keep))
    asked = False

    def signalled() -> None:
        nonlocal asked
        if not asked and not telling.done():
            telling.cancel()
        else:
            story.show("still cleaning up; this takes some seconds")
        asked = True

    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, signalled)
    try:
        await asyncio.wait([telling])
    finally:
        if not stack.kept:
            story.step("Interrupted: cleaning up" if telling.cancelled() else "Cleaning up")
            story.doing("draining the gateway, then stopping replicas and components")
            await stack.end()
            story.show(f"nothing is left running, and {root} is removed")
    if not telling.cancelled():
        telling.result()
    return not telling.cancelled()
