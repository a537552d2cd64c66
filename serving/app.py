"""The entry point: `slipway` and `python -m serving.app`. Starts fast, so it imports nothing before it must."""


def main() -> None:
    """Run the command line and exit with its code (docs/cli.md lists them)."""
    from serving.cli.main import run  # noqa: PLC0415 a component must not pay for the command line

    run()


if __name__ == "__main__":
    main()
