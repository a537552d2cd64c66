"""Schedules, which replace the bounds of a target's replicas for a time. Pure, except that `zoneinfo` reads
each time zone once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zoneinfo import ZoneInfo

from autoscaler.policy.limits.cron import Cron


@dataclass(frozen=True, slots=True)
class Schedule:
    """Bounds that hold from each `start` until the next `end`, or for `duration`."""

    name: str
    start: Cron
    zone: ZoneInfo
    end: Cron | None = None
    duration: float | None = None
    """Seconds; either `duration` or `end` is set."""
    minimum: int | None = None
    """Replicas; None: the schedule leaves the minimum as it is."""
    maximum: int | None = None
    """Replicas; None: the schedule leaves the maximum as it is."""

    def is_active(self, now: float) -> bool:
        """Whether the bounds hold at `now`, in Unix seconds."""
        start = self.start.latest(self.zone, now)
        if start is None:
            return False
        if self.end is None:
            return self.duration is not None and now < start + self.duration
        end = self.end.latest(self.zone, now)
        return end is None or end < start


class Bounds(NamedTuple):
    """The least and the most replicas at one time."""

    least: int
    most: int
    schedule: str
    """Names of the schedules that set `least` or `most`; empty: the spec sets both."""


def bounds_at(schedules: Sequence[Schedule], minimum: int, maximum: int, now: float) -> Bounds:
    """Return the bounds at `now`.

    A schedule's bounds replace the bounds of the spec. Of several active schedules the highest minimum and
    the highest maximum hold, and a minimum above the maximum raises the maximum. So no schedule lowers a
    bound that another active schedule sets.

    Args:
        schedules: all schedules of the target.
        minimum: replicas while no active schedule sets a minimum.
        maximum: replicas while no active schedule sets a maximum.
        now: Unix seconds.
    """
    if not schedules:
        return Bounds(minimum, max(maximum, minimum), "")
    active = [schedule for schedule in schedules if schedule.is_active(now)]
    least = max((s.minimum for s in active if s.minimum is not None), default=minimum)
    most = max((s.maximum for s in active if s.maximum is not None), default=maximum)
    most = max(most, least)
    names = [s.name for s in active if s.minimum == least or s.maximum == most]
    return Bounds(least, most, ", ".join(sorted(names)))
