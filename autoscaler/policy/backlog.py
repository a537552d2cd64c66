"""The replicas that work off a backlog: requests that will wait when a start ordered now is ready. Pure."""

import math

from autoscaler.observation import Replicas
from autoscaler.policy.window import WindowMaximum
from autoscaler.settings import DEFAULTS

CATCH_UP_STARTS = 0.33
"""Time in which ready replicas work off a backlog, in start-up times. A shorter time needs more additional
replicas, each of which costs its start-up time."""
SHORTEST_CATCH_UP = 10.0
"""Seconds: two decisions."""
KEPT_SECONDS = 15.0
"""Seconds for which replicas for a backlog are kept: three readings. Ready replicas and requests are counted
at different moments, so that one reading may show no backlog."""
MOST_CATCH_UP = 0.45
"""Most replicas for a backlog, relative to those for the load: slow starts do not wind up the count."""
LEAST_CATCH_UP = 2.0
"""Replicas that a backlog may have in any case while requests wait too long: `MOST_CATCH_UP` of few replicas
is less than one."""
TOLERANCE = 0.1
"""Share of a replica by which load may exceed a whole number of replicas without adding one."""


class Backlog:
    """The replicas for the load and the backlog of one target."""

    def __init__(self, risk: float) -> None:
        """Accept a slower catch-up at a higher configured `risk`, in per cent."""
        self._most_catch_up = MOST_CATCH_UP * DEFAULTS.risk / risk
        self._counts = WindowMaximum(KEPT_SECONDS)
        """Replicas for the load and its backlog at the last readings."""

    def replicas(
        self,
        now: float,
        *,
        for_load: float,
        backlog_seconds: float,
        startup: float,
        desired: int,
        is_late: bool,
    ) -> int:
        """Add the backlog of a reading, and return the replicas for the load and the backlog.

        Args:
            now: Unix seconds.
            for_load: replicas for the load alone.
            backlog_seconds: seconds in which one replica would work off the backlog.
            startup: seconds that a start is expected to take.
            desired: current `spec.replicas`.
            is_late: whether requests wait too long.
        """
        most = self._most_catch_up * for_load
        if is_late:
            most = max(most, LEAST_CATCH_UP)
        additional = min(backlog_seconds / max(CATCH_UP_STARTS * startup, SHORTEST_CATCH_UP), most)
        if is_late:
            # While requests wait too long, existing replicas are kept, within `most`.
            additional = max(additional, min(desired - for_load, most))
        self._counts.add(now, math.ceil(for_load + additional - TOLERANCE))
        return self._counts.maximum(now, KEPT_SECONDS)


def serving_seconds(replicas: Replicas, startup: float, now: float) -> float:
    """Return the seconds for which all replicas together serve until a start ordered now is ready: starting
    replicas serve from the expected end of their start on.
    """
    seconds = replicas.ready * startup
    for created in replicas.starting:
        until_ready = min(max(created + startup - now, 0.0), startup)
        seconds += startup - until_ready
    return seconds
