"""Where log lines go: to files of the data directory; a terminal gets only what its user must know."""

import logging
import os
import sys

from serving.data_dir import DataDir

_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s {name} %(name)s %(message)s"
_DATES = "%Y-%m-%dT%H:%M:%S"
_LEVEL = "SLIPWAY_LOG"
"""Environment variable: the least level that is written; INFO where it is not set."""
_TALKATIVE = ("uvicorn.error",)
"""Libraries that report every request or start at INFO: their warnings are enough."""


def of_component(name: str) -> None:
    """Log to standard error, which `up` has made the component's file."""
    _configure(name, logging.StreamHandler(sys.stderr))


def of_up(where: DataDir) -> None:
    """Log to `up.log`, and our own warnings (a component died) to the terminal too, bare."""
    where.logs.mkdir(parents=True, exist_ok=True)
    _configure("up", logging.FileHandler(where.logs / "up.log"))
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setLevel(logging.WARNING)
    terminal.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("serving").addHandler(terminal)


def of_nothing() -> None:
    """Keep libraries' warnings off the terminal: what matters of them reaches the user as an error."""
    logging.getLogger().addHandler(logging.NullHandler())


def _configure(name: str, handler: logging.Handler) -> None:
    handler.setFormatter(logging.Formatter(_FORMAT.format(name=name), _DATES))
    logging.basicConfig(level=os.environ.get(_LEVEL, "INFO").upper(), handlers=[handler], force=True)
    for library in _TALKATIVE:
        logging.getLogger(library).setLevel(logging.WARNING)
