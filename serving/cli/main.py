"""The `slipway` command: every failure ends with one message, an exit code and no traceback."""

import os
import sys
from collections.abc import Sequence


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv[:1] == ["component"]:
        from serving.cli.machine import component

        sys.exit(component.main(argv[1:]))
    if argv[:1] == ["component-zygote"]:
        from serving.cli.machine import zygote

        sys.exit(zygote.main(argv[1:]))
    if argv[:1] == ["__complete"]:
        from serving.cli.completion import shells

        shells.main(argv[1:])
        sys.exit()
    from serving import errors
    from serving.cli.machine import logfile

    logfile.of_nothing()
    try:
        _run(argv)
    except errors.SlipwayError as error:
        from serving.cli.exits import code, words

        sys.stdout.flush()
        print(f"error: {words(error)}", file=sys.stderr)
        sys.exit(code(error))
    except BrokenPipeError:  # as in `slipway get | head -1`; Python flushes once more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a file, a directory or a network that is not as the command expects
        from serving.cli.exits import Exit, words_of_system

        sys.stdout.flush()
        print(f"error: {words_of_system(error)}", file=sys.stderr)
        sys.exit(Exit.FAILED)


def _run(argv: list[str]) -> None:
    from serving.cli import command_group
    from serving.cli.commands import COMMANDS

    command_group.run("slipway", COMMANDS, argv)
