"""`slipway demo`: the command; `demo_story` has the steps, and what they import takes seconds."""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from serving import errors
from serving.settings import DataDir


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running at the end.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where its data lies.  [default: a temporary directory]")
    ] = None,
) -> None:
    """Train two models, serve them behind one endpoint, shift traffic between them; then clean up."""
    from serving.cli.demo_story import tell  # noqa: PLC0415 numeric libraries, which no other command needs

    if data_dir is not None and data_dir.exists() and any(data_dir.iterdir()):
        raise errors.UserError(f"{data_dir} is not empty; the demo wants a directory of its own")
    root = data_dir or Path(tempfile.mkdtemp(prefix="slipway-demo-"))
    if asyncio.run(tell(DataDir(root.absolute()), keep=keep)):
        raise typer.Exit(1)
