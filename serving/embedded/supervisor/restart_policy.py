"""Decides when a component that ended is started again. Pure: no clock, no processes."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from serving.settings import SupervisorSettings

GIVES_UP = 64
"""Exit status of a component that cannot run as configured (sysexits.h EX_USAGE); its last line has the
reason."""


@dataclass(frozen=True)
class RestartHistory:
    """How often in a row one component has failed, and since when it runs (monotonic seconds)."""

    failures: int = 0
    started: float = 0.0


class Restart(NamedTuple):
    """Start again after `delay` seconds."""

    delay: float
    history: RestartHistory


class Fail(NamedTuple):
    """Do not start again: the component cannot run as configured, and not all components have been up yet."""


def started(history: RestartHistory, now: float) -> RestartHistory:
    """Return the history after a start, or an adoption."""
    return replace(history, started=now)


def ended(
    history: RestartHistory, code: int | None, *, now: float, proven: bool, settings: SupervisorSettings
) -> Restart | Fail:
    """Return the decision after the end of a component.

    Args:
        history: of the component.
        code: exit status (negative: by signal); None where it is unknown, as of an adopted one.
        now: monotonic seconds.
        proven: whether all components have been up since `up` started. From then on a component that gives
            up is restarted too: the cause may pass, and others are serving.
        settings: delays, in seconds.
    """
    if code == GIVES_UP and not proven:
        return Fail()
    lasted = now - history.started
    failures = 1 if lasted >= settings.healthy_seconds else history.failures + 1
    delay = min(settings.restart_seconds * 2 ** min(failures - 1, 16), settings.restart_cap_seconds)
    return Restart(delay, replace(history, failures=failures))
