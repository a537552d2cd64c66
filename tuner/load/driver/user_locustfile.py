"""Runs a user's own locustfile, and records its requests by locust's request event."""

import sys
import time
import types
from typing import Any

import locust
from locust.util.load_locustfile import is_user_class

from tuner.load.driver.latency_log import LatencyLog

_NAME = "locustfile"


class LocustfileError(Exception):
    """The locustfile cannot be run."""


def users(source: str) -> list[type[locust.User]]:
    """Return the user classes of a locustfile.

    Raises:
        LocustfileError: its code raises, or it has no user class.
    """
    module = types.ModuleType(_NAME)
    sys.modules[_NAME] = module
    try:
        exec(compile(source, f"{_NAME}.py", "exec"), vars(module))  # noqa: S102 the user's own code
    except (Exception, SystemExit) as error:
        raise LocustfileError(f"the locustfile does not load: {_reason(error)}") from error
    classes = [value for value in vars(module).values() if is_user_class(value)]
    if not classes:
        raise LocustfileError("the locustfile has no user: a class of locust.User's kind with a task")
    return classes


def _reason(error: BaseException) -> str:
    """Return an error as text, with the innermost line of the locustfile that raised it."""
    lines, entry = [], error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code.co_filename == f"{_NAME}.py":
            lines.append(entry.tb_lineno)
        entry = entry.tb_next
    if isinstance(error, SyntaxError):
        lines.append(error.lineno or 0)
    where = f"line {lines[-1]}: " if lines else ""
    return f"{where}{type(error).__name__}: {error}"


def record(log: LatencyLog) -> None:
    """Record every request, and every exception of the user's own code, by locust's events."""

    def on_request(
        response_time: float | None = None, exception: BaseException | None = None, **_: Any
    ) -> None:
        now = time.monotonic()
        error = f"{type(exception).__name__}: {exception}" if exception else ""
        log.record(now - (response_time or 0.0) / 1000, now, error)

    def on_error(exception: BaseException, **_: Any) -> None:
        now = time.monotonic()
        log.record(now, now, f"in the locustfile: {type(exception).__name__}: {exception}")

    locust.events.request.add_listener(on_request)
    locust.events.user_error.add_listener(on_error)
