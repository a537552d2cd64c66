"""What can be typed after `slipway config`. As in `serving.cli.commands`, a command imports what it does when it runs."""

from typing import Annotated, Literal

import typer

from serving.cli.options import ConfigFile, OwnDataDir

config = typer.Typer(
    help="Show and explain the settings of the configuration file.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@config.command()
def show(
    every: Annotated[bool, typer.Option("--all", help="Defaults too.")] = False,
    output: Annotated[Literal["yaml", "json"], typer.Option("-o", "--output", help="How to print.")] = "yaml",
    config_file: ConfigFile = None, data_dir: OwnDataDir = None,
) -> None:  # fmt: skip
    """Validate the configuration and print what differs from the defaults.

    Values come from the file, then SLIPWAY_SECTION__NAME in the environment. The output is a valid file.
    """
    from serving.cli.config import printing

    printing.show(data_dir, config_file, output, every=every)


@config.command()
def explain(
    path: Annotated[str | None, typer.Argument(metavar="[SECTION[.SETTING]]", help="A section or a setting; nothing: all sections.")] = None,
    output: Annotated[Literal["text", "json"], typer.Option("-o", "--output", help="How to print.")] = "text",
) -> None:  # fmt: skip
    """Explain settings: unit, bounds, default and reason."""
    from serving.cli.config import printing

    printing.explain(path, output)
