"""Stabilization: a rise has a least step, and a fall waits until the lower need has lasted. Pure.

A fall always waits for a window; a rise only if the spec sets one.
"""

import math
from dataclasses import replace

from autoscaler.policy.need import Need
from autoscaler.policy.window import WindowMaximum

HOLD_SECONDS = 120.0
"""Least seconds of the window for which a need is held, where the spec sets no window."""
HOLD_STARTS = 1.0
"""Least start-up times of the same window: a replica that is needed again sooner costs less kept than
started."""
DEAD_BAND = 0.2
"""Share of the need: a smaller fall waits for `SLOW_WINDOWS`."""
MOST_BAND = 4
"""Most replicas of this share: of many replicas, a small share is already worth taking away."""
RISE_STEP = 0.1
"""Least rise, as a share of the replicas: load that rises by one replica goes on to rise more often than not,
and each change costs a start and an event."""
MOST_RISE_STEP = 2
"""Most replicas of the least rise."""
SLOW_WINDOWS = 10.0
"""Windows after which a smaller fall is answered too."""
MOST_HELD = 6 * 3600.0
"""Seconds of needs that are kept, for windows of any length up to it."""


class Stabilization:
    """The needs of the last hours, and the replicas to keep, or not to start yet, because of them."""

    def __init__(self, seconds: float | None, rise_seconds: float | None = None) -> None:
        """Keep needs for `seconds`, as the spec sets; None chooses by the start-up time.

        A rise is answered once it has lasted for `rise_seconds`; None answers it at once.
        """
        self._seconds = seconds
        self._rise_seconds = rise_seconds
        self._needs = WindowMaximum(MOST_HELD)
        self._count = 0
        """The needed count of the last decision, which is the need until the next one."""
        self._negated_counts = WindowMaximum(MOST_HELD)
        """Earlier needed counts, negated, by the time of the decision that ended them: their maximum is the
        negated least count of a window. Decisions may be farther apart than the window."""
        self._clock_jumped = False
        """Whether the clock jumped since the last need."""

    def clock_jumped(self) -> None:
        """Count the existing replicas as a need at the next decision: earlier times mean nothing now."""
        self._clock_jumped = True

    def keep(self, now: float, desired: int, needed: int, startup: float) -> int:
        """Add the current need, and return the replicas to keep; a small fall waits for `SLOW_WINDOWS`.

        Args:
            now: Unix seconds.
            desired: current `spec.replicas`.
            needed: needed replicas, without those for a backlog.
            startup: seconds that a start is expected to take.
        """
        self._add(now, desired, needed)
        window = self._window(startup)
        highest = self._needs.maximum(now, window)
        if self._seconds is not None or desired - highest >= min(math.ceil(DEAD_BAND * highest), MOST_BAND):
            return highest
        return max(highest, min(self._needs.maximum(now, SLOW_WINDOWS * window), desired))

    def keep_without_load(self, now: float, desired: int, needed: int, startup: float) -> int:
        """Add a need of metrics while the load is unknown, and return the replicas to keep."""
        self._add(now, desired, needed)
        return self._needs.maximum(now, self._window(startup))

    def sustained_rise(self, now: float, desired: int, count: int) -> int:
        """Add a needed count, and return the count that was needed throughout the window of a rise.

        To be called after `keep` or `keep_without_load`. A target at zero rises at once: requests wait.
        """
        if not self._rise_seconds:
            return count
        self._negated_counts.add(now, -self._count)
        self._count = count
        if not count > desired > 0:
            return count
        # Just less than the window: a count that ended exactly at its start was not needed within it.
        least = -self._negated_counts.maximum(math.nextafter(now, math.inf), self._rise_seconds)
        return max(min(count, least), desired)

    def _window(self, startup: float) -> float:
        """Return the seconds for which a need is held."""
        return max(HOLD_SECONDS, HOLD_STARTS * startup) if self._seconds is None else self._seconds

    def _add(self, now: float, desired: int, needed: int) -> None:
        """Add a need, and the existing count `desired` as a need where no earlier need is known."""
        if desired == 0:
            # Earlier needs keep replicas, and there are none to keep: a request starts the replicas it needs.
            self._needs = WindowMaximum(MOST_HELD)
        if self._clock_jumped or self._needs.is_empty(now):
            # The controller has just started, or the clock jumped: the existing count is a current need.
            self._needs.add(now, desired)
            self._count = desired
            self._clock_jumped = False
        self._needs.add(now, needed)


def with_rise_step(need: Need, desired: int) -> Need:
    """Return the need, raised to the least step of a rise if it exceeds the current count."""
    if not need.without_backlog > desired > 0:
        return need
    risen = desired + min(int(RISE_STEP * desired + 1e-9), MOST_RISE_STEP)
    return replace(need, replicas=max(need.replicas, risen), without_backlog=max(need.without_backlog, risen))


def rise_stabilized_message(needed: int, sustained: int) -> str:
    """Return the message of a count that does not rise to the need yet."""
    return f"{needed} needed now; {sustained} needed throughout the stabilization window"


def stabilized_message(needed: int, stabilized: int) -> str:
    """Return the message of a count that is kept for an earlier need."""
    return f"{needed} needed now; {stabilized} needed within the stabilization window"
