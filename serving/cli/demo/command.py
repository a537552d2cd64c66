"""`slipway demo`: its data directory, signals and exit code. `story` has the steps."""

import asyncio
import importlib.util
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serving import errors
from serving.cli.exits import Exit
from serving.data_dir import DataDir

if TYPE_CHECKING:
    from serving.cli.demo.console import Story

LLM_MODULES = ("torch", "transformers", "openai")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running at the end.")] = False,
    llm: Annotated[
        bool, typer.Option("--llm", help="With language models; needs the extra `llm` and `openai`.")
    ] = False,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="With --llm: train and serve on the machine's NVIDIA GPU, by MPS.")
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", help="Data directory.  [default: a temporary directory]"),
    ] = None,
) -> None:
    """Train, serve and shift traffic; then clean up.

    Two models, one endpoint, a few thousand requests: every number that is shown is measured.
    """
    if data_dir is not None and data_dir.exists() and any(data_dir.iterdir()):
        raise errors.UserError(f"{data_dir} is not empty; the demo wants a directory of its own")
    if llm:
        _check_llm()
    if gpu and not llm:
        raise errors.UserError("--gpu: is for language models: add --llm")
    from serving.cli.demo.console import Story

    name = _gpu() if gpu else ""
    with Story() as story:
        completed = asyncio.run(_until_signal(story, data_dir, keep=keep, llm=llm, gpu=name))
    if not completed:
        sys.exit(Exit.INTERRUPTED)
    if story.failed:
        sys.exit(Exit.FAILED)


def _check_llm() -> None:
    if missing := [name for name in LLM_MODULES if importlib.util.find_spec(name) is None]:
        raise errors.UserError(f"--llm needs {', '.join(missing)}: pip install 'slipway[llm]' openai")


def _gpu() -> str:
    """Return the name of the GPU."""
    from serving.cli.demo import gpu

    return gpu.check()


async def _until_signal(story: "Story", data_dir: Path | None, *, keep: bool, llm: bool, gpu: str) -> bool:
    """Run the steps until their end or a signal; then stop everything, unless the stack is kept.

    Return whether the steps came to their end. Signals do not interrupt the stop.
    """
    from serving.cli.demo.stack import Stack
    from serving.cli.demo.story import tell

    root = data_dir or Path(tempfile.mkdtemp(prefix="slipway-demo-"))
    stack = Stack(DataDir(root.absolute()))
    steps = asyncio.ensure_future(tell(story, stack, keep=keep, llm=llm, gpu=gpu))
    interrupted = False

    def signalled() -> None:
        nonlocal interrupted
        if not interrupted and not steps.done():
            steps.cancel()
        else:
            story.show("still cleaning up; this takes some seconds")
        interrupted = True

    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, signalled)
    try:
        await asyncio.wait([steps])
    finally:
        if not stack.kept:
            story.step("Interrupted: cleaning up" if steps.cancelled() else "Cleaning up")
            story.doing("draining the gateway, then stopping replicas and components")
            await stack.end()
            story.show(f"nothing is left running, and {root} is removed")
    if not steps.cancelled():
        steps.result()
    return not steps.cancelled()
