"""Runs a user's own locustfile, and records its requests by locust's request event."""

import sys
import time
import types
from typing import Any

import locust
from locust.util.load_locustfile import is_user_class

from tuner.load.driver.latency_log import LatencyLog

_NAME = "locustfile"


class Wrong(Exception):
    """The locustfile cannot be run; the message has the reason."""


def users(source: str) -> list[type[locust.User]]:
    """Return the users of a locustfile.

    Raises:
        Wrong: its import raises, or it has no users.
    """
    module = types.ModuleType(_NAME)
    sys.modules[_NAME] = module
    try:
        exec(compile(source, f"{_NAME}.py", "exec"), vars(module))  # noqa: S102 that is what a locustfile is for
    except (Exception, SystemExit) as error:
        raise Wrong(f"the locustfile does not load: {_said(error)}") from error
    found = [value for value in vars(module).values() if is_user_class(value)]
    if not found:
        raise Wrong("the locustfile has no user: a class of locust.User's kind with a task")
    return found


def _said(error: BaseException) -> str:
    lines, entry = [], error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code.co_filename == f"{_NAME}.py":
            lines.append(entry.tb_lineno)
        entry = entry.tb_next
    if isinstance(error, SyntaxError):
        lines.append(error.lineno or 0)
    where = f"line {lines[-1]}: " if lines else ""
    return f"{where}{type(error).__name__}: {error}"


def record(recorder: LatencyLog) -> None:
    """Record what locust's events say: every request, and what a user's own code raised."""

    def on_request(
        response_time: float | None = None, exception: BaseException | None = None, **_: Any
    ) -> None:
        now = time.monotonic()
        error = f"{type(exception).__name__}: {exception}" if exception else ""
        recorder.record(now - (response_time or 0.0) / 1000, now, error)

    def on_error(exception: BaseException, **_: Any) -> None:
        now = time.monotonic()
        recorder.record(now, now, f"in the locustfile: {type(exception).__name__}: {exception}")

    locust.events.request.add_listener(on_request)
    locust.events.user_error.add_listener(on_error)
