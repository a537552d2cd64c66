"""Decides when the last replica stops, and when a replica starts before the first request. Pure.

An idle replica costs its time; a missing replica costs the wait of a request for a start. The distribution of
idle times and the times of day of requests give the probability of the next request (as in Shahrad et al.,
"Serverless in the Wild", USENIX ATC 2020, with the economics of ski rental instead of percentiles).
"""

import math
from array import array
from typing import Any

from autoscaler.forecast.profile import DAY

PRICE_SECONDS = 10_800.0
"""Cost of a request that waits for a start, in seconds of an idle replica, at a risk of 0.5 percent."""
PRICE_PER_START = 60.0
"""Start-up time in seconds at which `PRICE_SECONDS` holds: the cost is in proportion to the wait."""
LEAST_STARTUP = 5.0
"""Seconds: the cost of a request that waits for a shorter start is no lower."""
RISK = 0.5
"""Percent of late requests at which `PRICE_SECONDS` holds."""
SHORTEST_IDLE = 5.0
"""Seconds: shorter gaps between requests are not counted as idle times."""
BIN_RATIO = 1.25
"""Ratio of the ends of a bin of idle times."""
BINS = 62
"""Up to 5 s x 1.25^62 = 59 days."""
TAIL_PRIOR = 1.0
"""Assumed idle times longer than all bins: an idle time longer than all before need not end soon."""
PRIOR = 0.15
"""Assumed idle times in each bin before the first observation: short and long times are equally likely."""
MEMORY = 200.0
"""Number of idle times after which an idle time weighs 1/e."""
SLOT = 900.0
"""Seconds of a slot of the day: the punctuality of people."""
SLOTS = round(DAY / SLOT)
SLOT_GAIN = 0.15
"""Weight of the last day in a slot's share."""
SLOT_LIMITS = (0.1, 10.0)
"""Bounds of the ratio of a slot's rate to the mean rate."""
HORIZON = 6 * 3600.0
"""Seconds ahead for which costs are compared."""
PREWARM_STARTUPS = 2.0
"""Start-up times within which a prewarmed replica must be worth its cost."""
PREWARM_SECONDS = 60.0
"""Seconds in addition to `PREWARM_STARTUPS`, as short starts would leave no time for a request."""
LEAST_SHARE = 1e-3
"""Added to the share of each slot, so that the mean of slots without requests is no divisor of 0."""
SAME_TIME = 1e-6
"""Seconds by which two sums of the same steps may differ."""
LEAST_SURVIVAL = 1e-3
"""Probability that no request has come, below which later seconds are not worth computing."""

_EDGES = tuple(SHORTEST_IDLE * BIN_RATIO**i for i in range(BINS + 1))
"""Seconds at which the bins of idle times begin, and at which the last one ends."""


class IdleTimes:
    """The distribution of one target's idle times."""

    def __init__(self) -> None:
        self._counts = array("d", [PRIOR] * BINS)
        """Weight of the idle times in each bin; later idle times weigh more."""
        self._slots = array("d", [0.5] * SLOTS)
        """Share of days with a request in the slot; recent days weigh more."""
        self._slot = -1
        """The slot since 1970 of the last reading; -1 before the first."""
        self._is_slot_busy = False
        """Whether requests have come in this slot."""
        self._last_request = -math.inf

    @property
    def last_request(self) -> float:
        """Unix seconds from which idleness counts, usually the last request; minus infinity before any."""
        return self._last_request

    def begin(self, now: float) -> None:
        """Count idleness from `now` on where no request has arrived yet: a new replica expects requests."""
        if self._last_request == -math.inf:
            self._last_request = now

    def begin_anew(self, now: float) -> None:
        """Count idleness from `now` on: until now requests may have arrived that no one counted."""
        self._last_request = now

    def shift(self, seconds: float) -> None:
        """Follow a clock that was set by `seconds`: the current idle time keeps its length."""
        self._last_request += seconds

    def observe(self, start: float, end: float, is_busy: bool) -> None:  # noqa: FBT001 the value of a reading
        """Take a reading: whether requests arrived or were in service between `start` and `end`."""
        if is_busy:
            gap = start - self._last_request
            if gap >= SHORTEST_IDLE and self._last_request > -math.inf:
                self._count(gap)
            self._last_request = end
        slot = int(end // SLOT)
        if slot != self._slot:
            self._learn_slots(slot)
            self._slot, self._is_slot_busy = slot, False
        self._is_slot_busy = self._is_slot_busy or is_busy

    def keeps(self, now: float, startup: float, risk: float) -> bool:
        """Return whether an idle replica is worth its time."""
        return self._worth(now, 0.0, price(startup, risk)) > 0

    def prewarms(self, now: float, startup: float, risk: float) -> bool:
        """Return whether a start without a request is worth its cost: a request is likely right after it."""
        within = PREWARM_STARTUPS * startup + PREWARM_SECONDS
        return self._worth(now, startup, price(startup, risk), within=within) > 0

    def keep_seconds(self, now: float, startup: float, risk: float) -> float:
        """Return the seconds without a request after which a replica stops if the last request ends at `now`;
        of a time beyond `HORIZON` only the first step beyond it.
        """
        cost = price(startup, risk)
        age = 0.0
        step = SHORTEST_IDLE
        while age < HORIZON and self._worth(now + age, 0.0, cost, age=age) > 0:
            age += step
            step *= BIN_RATIO
        return age

    def _learn_slots(self, slot: int) -> None:
        """Learn the slots from the last reading's on, without `slot`; a pause of a day or more is skipped."""
        if self._slot < 0 or slot - self._slot >= SLOTS:
            return
        for passed in range(self._slot, slot):
            is_busy = self._is_slot_busy and passed == self._slot
            slot_of_day = passed % SLOTS
            self._slots[slot_of_day] += SLOT_GAIN * (float(is_busy) - self._slots[slot_of_day])

    def _count(self, gap: float) -> None:
        """Add an idle time of `gap` seconds to its bin."""
        index = self._index(gap)
        decay = math.exp(-1 / MEMORY)
        for i in range(BINS):
            self._counts[i] = PRIOR + (self._counts[i] - PRIOR) * decay
        self._counts[index] += 1

    def _worth(
        self, now: float, startup: float, cost: float, *, within: float = HORIZON, age: float | None = None
    ) -> float:
        """Return the highest net value of a replica that stays for some time, in seconds of an idle replica.

        The time ahead is cut into steps within one bin of idle times and at most a slot long. In each, the
        hazard rate of the next request is that of the histogram, in proportion to the slot's share at its
        beginning. Before a start, steps also end at the end of the start and at those of slots, as minutes
        decide whether the start is in time. The value is 0 if a replica is worth less than its cost for each
        time that it may stay.

        Args:
            now: Unix seconds.
            startup: seconds until the replica is ready; an earlier request saves no wait.
            cost: of a request that waits for a start, in seconds of an idle replica.
            within: the longest time that the replica may stay, in seconds.
            age: seconds since the last request; None: until `now`.
        """
        if self._last_request == -math.inf:
            return 0.0
        if age is None:
            age = max(now - self._last_request, 0.0)
        if age >= _EDGES[-1]:
            return 0.0
        mean_share = sum(self._slots) / SLOTS + LEAST_SHARE
        survival = 1.0  # probability that no request has come
        total = best = elapsed = 0.0
        tail = self._tail(age)
        index = self._index(age)
        while elapsed < within and survival > LEAST_SURVIVAL and index < BINS:
            step = min(_EDGES[index + 1] - age - elapsed, SLOT, within - elapsed)
            is_ready = elapsed >= startup - SAME_TIME
            if startup > 0:
                until_slot_end = SLOT - (now + elapsed + SAME_TIME) % SLOT
                step = min(step, until_slot_end, math.inf if is_ready else startup - elapsed)
            hazard = self._hazard(index, tail) * self._slot_factor(now + elapsed + SAME_TIME, mean_share)
            arrival_probability = 1 - math.exp(-hazard * step)
            value = cost if is_ready else 0.0
            idle_seconds = step * (1 - 0.5 * arrival_probability)  # a request ends a step in its middle
            total += survival * (arrival_probability * value - idle_seconds)
            best = max(best, total)
            survival *= 1 - arrival_probability
            elapsed += step
            while index < BINS and age + elapsed >= _EDGES[index + 1] - SAME_TIME:
                index += 1
                weight = self._counts[index] if index < BINS else 0.0
                tail = max(tail - weight, TAIL_PRIOR)
        return best

    def _hazard(self, index: int, tail: float) -> float:
        """Return the rate per second at which idle times end within a bin.

        Args:
            index: of the bin.
            tail: weight of the idle times in later bins.
        """
        width = _EDGES[index + 1] - (_EDGES[index] if index else 0.0)  # the first bin begins at 0
        weight = self._counts[index]
        return weight / max(tail + 0.5 * weight, 1e-9) / width

    def _slot_factor(self, now: float, mean_share: float) -> float:
        """Return the ratio of the share of the slot at `now` to the mean share, within `SLOT_LIMITS`."""
        ratio = (self._slots[int(now // SLOT) % SLOTS] + LEAST_SHARE) / mean_share
        return min(max(ratio, SLOT_LIMITS[0]), SLOT_LIMITS[1])

    def _index(self, age: float) -> int:
        """Return the bin of an idle time of `age` seconds."""
        if age < SHORTEST_IDLE:
            return 0
        return min(int(math.log(age / SHORTEST_IDLE) / math.log(BIN_RATIO) + 1e-9), BINS - 1)

    def _tail(self, age: float) -> float:
        """Return the weight of idle times in the bins after that of `age`."""
        return TAIL_PRIOR + sum(self._counts[self._index(age) + 1 :])

    def state(self) -> dict[str, Any]:
        """Return the learned state for JSON."""
        last = self._last_request if self._last_request > -math.inf else None
        return {"counts": list(self._counts), "slots": list(self._slots), "last": last}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a result of `state`; a state of another shape is ignored."""
        if len(state["counts"]) == BINS and len(state["slots"]) == SLOTS:
            self._counts, self._slots = array("d", state["counts"]), array("d", state["slots"])
            self._last_request = -math.inf if state["last"] is None else float(state["last"])


def price(startup: float, risk: float) -> float:
    """Return the cost of a request that waits for a start, in seconds of an idle replica."""
    return PRICE_SECONDS * max(startup, LEAST_STARTUP) / PRICE_PER_START * RISK / risk
