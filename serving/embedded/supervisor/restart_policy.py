"""When a component that ended is started again. Pure: no clock, no processes."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from serving.settings import SupervisorSettings

GIVES_UP = 64
"""Exit status of a component that cannot run as it was asked to (sysexits.h EX_USAGE); its last line says why."""


@dataclass(frozen=True)
class History:
    """What is known of one component's ends: how many in a row, and since when it runs (monotonic seconds)."""

    failures: int = 0
    started: float = 0.0


class Restart(NamedTuple):
    """Start again after `delay` seconds."""

    delay: float
    history: History


class Fail(NamedTuple):
    """Do not start again: the component says that it cannot run as asked, and nothing has worked yet."""


def started(history: History, now: float) -> History:
    """Note that the component was started (or adopted)."""
    return replace(history, started=now)


def ended(
    history: History, code: int | None, *, now: float, proven: bool, settings: SupervisorSettings
) -> Restart | Fail:
    """Decide what follows the end of a component.

    Args:
        history: of this component.
        code: exit status (negative: by signal); None where it is unknown, as of an adopted one.
        now: monotonic seconds.
        proven: whether everything has been up once since `up` started. From then on a component that gives
            up is tried again all the same: what stopped it may pass, and others are serving.
        settings: delays, in seconds.
    """
    if code == GIVES_UP and not proven:
        return Fail()
    lasted = now - history.started
    failures = 1 if lasted >= settings.healthy_seconds else history.failures + 1
    delay = min(settings.restart_seconds * 2 ** min(failures - 1, 16), settings.restart_cap_seconds)
    return Restart(delay, replace(history, failures=failures))
