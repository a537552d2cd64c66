"""Configures logging: to files of the data directory; a terminal gets warnings only."""

import logging
import os
import sys

from serving import errors
from serving.data_dir import DataDir

_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s {name} %(name)s %(message)s"
_DATES = "%Y-%m-%dT%H:%M:%S"
_LEVEL = "SLIPWAY_LOG"
"""Environment variable: the lowest level that is logged; INFO by default."""
_TALKATIVE = ("uvicorn.error",)
"""Libraries that log every request or start at INFO; only their warnings are logged."""


def of_component(name: str) -> None:
    """Log to standard error, which `up` redirects to the component's file.

    Raises:
        errors.UserError: `SLIPWAY_LOG` is no level.
    """
    _configure(name, _level(), logging.StreamHandler(sys.stderr))


def of_up(where: DataDir) -> None:
    """Log to `up.log`; our own warnings, such as the death of a component, go to the terminal too.

    Raises:
        errors.UserError: `SLIPWAY_LOG` is no level.
    """
    level = _level()
    try:
        where.logs.mkdir(parents=True, exist_ok=True)
        _configure("up", level, logging.FileHandler(where.logs / "up.log"))
    except OSError:  # a full disk, on which the file cannot be made
        _configure("up", level, logging.NullHandler())
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setLevel(logging.WARNING)
    terminal.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("serving").addHandler(terminal)


def of_nothing() -> None:
    """Log nothing: without a handler, Python prints libraries' warnings to the terminal."""
    logging.getLogger().addHandler(logging.NullHandler())


def _level() -> str:
    level, levels = (os.environ.get(_LEVEL) or "INFO").upper(), logging.getLevelNamesMapping()
    if level not in levels:
        allowed = ", ".join(sorted(levels, key=levels.__getitem__))
        raise errors.UserError(f"{_LEVEL}: must be one of {allowed}, got {os.environ[_LEVEL]!r}")
    return level


def _configure(name: str, level: str, handler: logging.Handler) -> None:
    handler.setFormatter(logging.Formatter(_FORMAT.format(name=name), _DATES))
    # Lines that a full disk does not take are lost; a traceback for each would fill the terminal.
    logging.raiseExceptions = False
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for library in _TALKATIVE:
        logging.getLogger(library).setLevel(logging.WARNING)
