"""`slipway tune -f`, an option of the command group itself; imports `start` only when it is used."""

from pathlib import Path
from typing import Annotated

import typer

from serving.cli import target
from serving.cli.options import DataDirOfUp, Kubeconfig, Namespace, Watch


def tune(
    context: typer.Context,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "-f",
            "--filename",
            metavar="FILE",
            help="Start the experiment of this file; - is standard input.",
        ),
    ] = None,
    watch: Watch = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    data_dir: DataDirOfUp = None,
) -> None:
    """Find the cheapest spec of a predictor that meets its SLO."""
    options: tuple[list[str] | bool | str | Path | None, ...] = (file, watch, namespace, kubeconfig, data_dir)
    if context.invoked_subcommand is not None:
        if any(options):
            raise typer.BadParameter(
                f"options must follow the command: slipway tune {context.invoked_subcommand} ..."
            )
        return
    if not file:
        raise typer.BadParameter("name the experiment to start: slipway tune -f FILE")
    from serving.cli.tune.start import start

    start(file, target.resolve(kubeconfig, data_dir, namespace), watch=watch)
