"""`slipway demo`: where it runs; `demo_story` has the steps."""

import asyncio
import tempfile
from pathlib import Path

import typer

from serving import errors
from serving.cli.demo_story import tell
from serving.settings import DataDir


def demo(data_dir: Path | None, *, keep: bool) -> None:
    """Run the demo in this directory, or in a temporary one."""
    if data_dir is not None and data_dir.exists() and any(data_dir.iterdir()):
        raise errors.UserError(f"{data_dir} is not empty; the demo wants a directory of its own")
    root = data_dir or Path(tempfile.mkdtemp(prefix="slipway-demo-"))
    if asyncio.run(tell(DataDir(root.absolute()), keep=keep)):
        raise typer.Exit(1)
