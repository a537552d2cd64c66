"""The `slipway` command: how every failure ends: one message, one exit code, no traceback."""

import sys
from collections.abc import Sequence

from serving import errors


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv[:1] == ["component"]:
        from serving.cli import component

        sys.exit(component.main(argv[1:]))
    from serving.cli import logfile
    from serving.cli.commands import app

    logfile.of_nothing()
    try:
        app(argv, prog_name="slipway")
    except errors.SlipwayError as error:
        from serving.cli.exits import code, words

        sys.stdout.flush()
        print(f"error: {words(error)}", file=sys.stderr)
        sys.exit(code(error))
