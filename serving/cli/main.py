"""The `slipway` command: its commands, and how every failure ends: one message, one exit code, no traceback."""

import sys
from collections.abc import Sequence

import typer

from serving import errors
from serving.cli import apply, demo, describe, get, logs, traffic, up, version
from serving.cli.exits import code, words

app = typer.Typer(
    name="slipway",
    help="From a finished training job to weighted traffic.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (up, demo, apply, get, describe, logs, traffic, version):
    command.register(app)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv[:1] == ["component"]:
        from serving.cli import component  # noqa: PLC0415 loads servers, which no other command needs

        sys.exit(component.main(argv[1:]))
    try:
        app(argv, prog_name="slipway")
    except errors.SlipwayError as error:
        sys.stdout.flush()
        print(f"error: {words(error)}", file=sys.stderr)
        sys.exit(code(error))
