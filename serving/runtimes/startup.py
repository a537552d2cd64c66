"""The phases of a start-up and their durations, which readiness answers report.

Only `Stopwatch` reads the clock. Independent of models and processes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from serving import clock, errors
from serving.resources import names

PHASES = ("spawn", "import", "verify", "load", "warmup")
"""In order: from the fork of the container's process to `main`; missing imports; hashing the files and
listing the image; loading the model (with the imports of its pickle); its first runs."""


@dataclass(frozen=True)
class StartupReport:
    """The phases so far."""

    started: float
    """Unix seconds at the beginning of `main`, where `spawn` ends."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By phase; without `spawn` where the time of the fork is not known."""

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return `Server-Timing` (https://www.w3.org/TR/server-timing/, milliseconds) and when it started."""
        parts = [f"{name};dur={self.seconds[name] * 1000:.3f}" for name in PHASES if name in self.seconds]
        timing = ((b"server-timing", ", ".join(parts).encode()),) if parts else ()
        return (*timing, (names.STARTED_HEADER.encode(), f"{self.started:.6f}".encode()))


def begun(started: float, spawned: str) -> StartupReport:
    """Return the start-up at the beginning of `main`.

    Args:
        started: unix seconds, now.
        spawned: unix seconds of the process's start, as text; empty where it is not known.

    Raises:
        errors.UserError: `spawned` is not a number of seconds.
    """
    if not spawned:
        return StartupReport(started)
    try:
        since = float(spawned)
    except ValueError:
        since = float("nan")
    if not 0 <= since < float("inf"):
        raise errors.UserError(f"{names.SPAWNED_ENV}: must be unix seconds, got {spawned!r}")
    # A wall clock may be set back in between; a duration is never negative.
    return StartupReport(started, {"spawn": max(0.0, started - since)})


def spent(startup: StartupReport, phase: str, seconds: float) -> StartupReport:
    """Return the start-up with `seconds` added to a phase."""
    return replace(startup, seconds={**startup.seconds, phase: startup.seconds.get(phase, 0.0) + seconds})


class Stopwatch:
    """Measures consecutive phases, without gaps."""

    def __init__(self, spawned: str) -> None:
        """Begin now; `spawned` is as in `begun`.

        Raises:
            errors.UserError: `spawned` is not a number of seconds.
        """
        self._last = clock.monotonic()
        self.startup = begun(clock.now().timestamp(), spawned)

    def end(self, phase: str) -> None:
        """Add the time since the last call, or since the beginning, to this phase."""
        now = clock.monotonic()
        self.startup = spent(self.startup, phase, now - self._last)
        self._last = now
