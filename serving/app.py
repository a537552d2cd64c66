"""The entry point of `slipway` and `python -m serving.app`. Imports as little as possible, to start fast."""

import sys


def main() -> None:
    """Run the command line and exit with its code (docs/cli.md lists them)."""
    try:
        from serving.cli.main import run  # noqa: PLC0415 Ctrl-C during imports is no reason for a traceback

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
