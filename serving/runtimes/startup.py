"""The phases of a start-up and their durations, which readiness answers report.

Only `Stopwatch` reads the clock. Independent of models and processes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from serving import clock
from serving.resources import names

PHASES = ("import", "verify", "load", "warmup")
"""The phases of `names.START_PHASES` that a runtime measures, in the order of the header: `import`, the
imports that no zygote has made; `verify`, listing the image and hashing its files, before the imports;
`load`, loading the model (with the imports of its pickle); `warmup`, the model's first runs."""


@dataclass(frozen=True)
class StartupReport:
    """The phases so far."""

    started: float
    """Unix seconds at the beginning of `main`."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By phase."""

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return `Server-Timing` (https://www.w3.org/TR/server-timing/, milliseconds) and when it started."""
        parts = [f"{name};dur={self.seconds[name] * 1000:.3f}" for name in PHASES if name in self.seconds]
        timing = ((b"server-timing", ", ".join(parts).encode()),) if parts else ()
        return (*timing, (names.STARTED_HEADER.encode(), f"{self.started:.6f}".encode()))


def spent(startup: StartupReport, phase: str, seconds: float) -> StartupReport:
    """Return the start-up with `seconds` added to a phase."""
    return replace(startup, seconds={**startup.seconds, phase: startup.seconds.get(phase, 0.0) + seconds})


class Stopwatch:
    """Measures consecutive phases, without gaps."""

    def __init__(self) -> None:
        """Begin now."""
        self._last = clock.monotonic()
        self.startup = StartupReport(clock.now().timestamp())

    def end(self, phase: str) -> None:
        """Add the time since the last call, or since the beginning, to this phase."""
        now = clock.monotonic()
        self.startup = spent(self.startup, phase, now - self._last)
        self._last = now
