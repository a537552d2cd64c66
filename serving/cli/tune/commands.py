"""What can be typed after `slipway tune`. As in `serving.cli.commands`, a command imports what it does when it runs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from serving.cli.options import DataDirOfUp, Kubeconfig, Namespace
from serving.data_dir import DataDir

tune = typer.Typer(
    help="Find the cheapest spec of a predictor that meets its SLO.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ExperimentName = Annotated[str, typer.Argument(metavar="NAME", help="The ProfilingExperiment.")]


@tune.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    file: Annotated[list[str] | None, typer.Option("-f", "--filename", metavar="FILE", help="Start the experiment of this file; - is standard input.")] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Follow it to its end; exit code 1 if it fails.")] = False,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Find the cheapest spec of a predictor that meets its SLO."""
    if context.invoked_subcommand is not None:
        if file or watch or namespace or kubeconfig or data_dir:
            raise typer.BadParameter(
                f"options go behind the command: slipway tune {context.invoked_subcommand} ..."
            )
        return
    if not file:
        raise typer.BadParameter("say which experiment to start: slipway tune -f FILE")
    from serving.cli.target import target
    from serving.cli.tune import start as command

    command.start(file, target(kubeconfig, data_dir, namespace), watch=watch)


@tune.command()
def status(
    name: ExperimentName,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Follow it to its end; exit code 1 if it fails.")] = False,
    output: Annotated[Literal["table", "json", "yaml"], typer.Option("-o", "--output", help="How to print.")] = "table",
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Show how far it is, the best spec so far, what runs now."""
    from serving.cli.target import target
    from serving.cli.tune import status as command

    command.status(name, target(kubeconfig, data_dir, namespace), output, watch=watch)


@tune.command()
def report(
    name: ExperimentName,
    output: Annotated[Literal["text", "html", "json"] | None, typer.Option("-o", "--output", help="How to print.  [default: by the name of --out, else text]")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it there.  [default: of html, NAME.html; else standard output]")] = None,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Explain what was found.

    In sentences, as one HTML page, or as JSON.
    """
    from serving.cli.config.configuration import load
    from serving.cli.target import target
    from serving.cli.tune import report as command

    settings = load(DataDir.named(data_dir)).configuration.tuner
    command.report(name, target(kubeconfig, data_dir, namespace), output, out, settings)


@tune.command()
def apply(
    name: ExperimentName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also where the predictor is not what was measured any more.")] = False,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Let the predictor run what is recommended.

    Of an experiment on a ModelVersion: print an Inference that does.
    """
    from serving.cli.target import target
    from serving.cli.tune import apply as command

    command.apply(name, target(kubeconfig, data_dir, namespace), dry_run=dry_run, force=force)


@tune.command()
def stop(
    name: ExperimentName, namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Start no more trials.

    Those that run are finished, and what was measured stays.
    """
    from serving.cli.target import target
    from serving.cli.tune import suspend as command

    command.suspend(name, target(kubeconfig, data_dir, namespace), suspended=True)


@tune.command()
def resume(
    name: ExperimentName, namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Go on with an experiment that was stopped."""
    from serving.cli.target import target
    from serving.cli.tune import suspend as command

    command.suspend(name, target(kubeconfig, data_dir, namespace), suspended=False)
