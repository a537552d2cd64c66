"""Decides when a component is restarted, and when it counts as hung. Pure."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from serving.backoff import backoff_seconds
from serving.settings import SupervisorSettings

GIVES_UP = 64
"""Exit status of a component that cannot run as configured (EX_USAGE); its last line is the reason."""


@dataclass(frozen=True)
class RestartHistory:
    """The consecutive failures of a component, and its last start (monotonic seconds)."""

    failures: int = 0
    started: float = 0.0


class Restart(NamedTuple):
    """Restart after `delay` seconds."""

    delay: float
    history: RestartHistory


class Fail(NamedTuple):
    """Do not restart: the component cannot run as configured, and not all components have been up yet."""


def started(history: RestartHistory, now: float) -> RestartHistory:
    """Return the history after a start, or an adoption."""
    return replace(history, started=now)


def is_hung(
    history: RestartHistory, answered: float | None, *, now: float, settings: SupervisorSettings
) -> bool:
    """Whether a component that runs has hung.

    Args:
        history: the history of the component.
        answered: monotonic seconds of the last answer of its event loop; None before the first one.
        now: monotonic seconds.
        settings: the longest silence, in seconds.
    """
    if answered is None:
        return now - history.started > settings.start_seconds
    return now - answered > settings.hang_seconds


def ended(
    history: RestartHistory, code: int | None, *, now: float, proven: bool, settings: SupervisorSettings
) -> Restart | Fail:
    """Return the decision after the end of a component.

    Args:
        history: the history of the component.
        code: exit status (negative: by signal); None if unknown, as for an adopted component.
        now: monotonic seconds.
        proven: whether all components have been up since `up` started. From then on every component is
            restarted: the cause may pass, and the others are serving.
        settings: delays, in seconds.
    """
    if code == GIVES_UP and not proven:
        return Fail()
    is_healthy = now - history.started >= settings.healthy_seconds
    return _again(history, 1 if is_healthy else history.failures + 1, settings)


def failed_start(history: RestartHistory, *, now: float, settings: SupervisorSettings) -> Restart:
    """Return when to try again after a start that made no process, with arguments as for `ended`."""
    return _again(started(history, now), history.failures + 1, settings)


def _again(history: RestartHistory, failures: int, settings: SupervisorSettings) -> Restart:
    delay = backoff_seconds(failures, settings.restart_seconds, settings.restart_cap_seconds)
    return Restart(delay, replace(history, failures=failures))
