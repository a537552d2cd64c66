"""The `slipway` command: how every failure ends: one message, one exit code, no traceback."""

import sys
from collections.abc import Sequence

from serving import errors


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv[:1] == ["component"]:
        from serving.cli.machine import component

        sys.exit(component.main(argv[1:]))
    from serving.cli.machine import logfile

    logfile.of_nothing()
    try:
        _run(argv)
    except errors.SlipwayError as error:
        from serving.cli.exits import code, words

        sys.stdout.flush()
        print(f"error: {words(error)}", file=sys.stderr)
        sys.exit(code(error))


def _run(argv: list[str]) -> None:
    if argv == [
        "version"
    ]:  # Typer reads options with Pydantic, which alone takes longer than all of this command
        from serving.cli.version import version

        version(None, None, "text", ask=True)
    else:
        from serving.cli.commands import app

        app(argv, prog_name="slipway")
