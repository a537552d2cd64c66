"""What a start-up spent its time on, so that whoever asks whether it is ready learns why it took so long.

Values and their HTTP form are pure; `Stopwatch` alone reads the clock. Knows no model and no process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from serving import clock, errors
from serving.resources import names

PHASES = ("spawn", "import", "verify", "load", "warmup")
"""In order: from the fork of the container's process to `main`; imports that were not done yet; hashing and the
image's names; making the model of its files (with the imports that its pickle asks for); its first runs."""


@dataclass(frozen=True)
class Startup:
    """A start-up so far.

    `started`: unix seconds at the beginning of `main`, where `spawn` ends. `seconds`: by phase; `spawn` is absent where
    nobody said when the process was made.
    """

    started: float
    seconds: Mapping[str, float] = field(default_factory=dict)

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return `Server-Timing` (https://www.w3.org/TR/server-timing/, milliseconds) and when it started."""
        parts = [f"{name};dur={self.seconds[name] * 1000:.3f}" for name in PHASES if name in self.seconds]
        timing = ((b"server-timing", ", ".join(parts).encode()),) if parts else ()
        return (*timing, (names.STARTED_HEADER.encode(), f"{self.started:.6f}".encode()))


def begun(started: float, spawned: str) -> Startup:
    """Return the start-up at the beginning of `main`.

    Args:
        started: unix seconds, now.
        spawned: unix seconds at which the process was made, as text; empty where that is not known.

    Raises:
        errors.UserError: `spawned` is no number of seconds.
    """
    if not spawned:
        return Startup(started)
    try:
        since = float(spawned)
    except ValueError:
        since = float("nan")
    if not 0 <= since < float("inf"):
        raise errors.UserError(f"{names.SPAWNED_ENV}: must be unix seconds, got {spawned!r}")
    # A wall clock may be set back in between; a duration is never negative.
    return Startup(started, {"spawn": max(0.0, started - since)})


def spent(startup: Startup, phase: str, seconds: float) -> Startup:
    """Return the start-up with so many more seconds in a phase."""
    return replace(startup, seconds={**startup.seconds, phase: startup.seconds.get(phase, 0.0) + seconds})


class Stopwatch:
    """Measures phases one after the other, with nothing in between that belongs to none."""

    def __init__(self, spawned: str) -> None:
        """Begin now; `spawned` is as in `begun`.

        Raises:
            errors.UserError: `spawned` is no number of seconds.
        """
        self._last = clock.monotonic()
        self.startup = begun(clock.now().timestamp(), spawned)

    def end(self, phase: str) -> None:
        """Count what passed since the last call, or since the beginning, as this phase's."""
        now = clock.monotonic()
        self.startup = spent(self.startup, phase, now - self._last)
        self._last = now
