"""A runtime for tests with a zygote: runs Python code from its arguments, as `python -u -c CODE` does."""

import sys

PRELOAD = ("http.server",)


def main() -> int:
    """Take `-u -c CODE`."""
    assert sys.argv[1:3] == ["-u", "-c"]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    exec(compile(sys.argv[3], "<string>", "exec"), {"__name__": "__main__"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
