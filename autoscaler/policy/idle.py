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

_EDGES = tuple(SHORTEST_IDLE * BIN_RATIO**i for i in range(BINS + 1))


class IdleTimes:
    """The distribution of one target's idle times."""

    def __init__(self) -> None:
        self._counts = array("d", [PRIOR] * BINS)
        self._slots = array("d", [0.5] * SLOTS)
        """Share of days with a request in the slot; recent days weigh more."""
        self._slot, self._slot_busy = -1, False
        self._last = -math.inf

    @property
    def last(self) -> float:
        """Unix seconds of the last request; minus infinity before the first."""
        return self._last

    def begin(self, now: float) -> None:
        """Count idleness from `now` on where no request has arrived yet: a new replica expects requests."""
        if self._last == -math.inf:
            self._last = now

    def begin_anew(self, now: float) -> None:
        """Count idleness from `now` on: until now requests may have arrived that no one counted."""
        self._last = now

    def shift(self, seconds: float) -> None:
        """Follow a clock that was set by `seconds`: the current idle time keeps its length."""
        self._last += seconds

    def observe(self, start: float, end: float, is_busy: bool) -> None:  # noqa: FBT001 the value of a reading
        """Take a reading: whether requests arrived or were in service between `start` and `end`."""
        if is_busy:
            gap = start - self._last
            if gap >= SHORTEST_IDLE and self._last > -math.inf:
                self._count(gap)
            self._last = end
        slot = int(end // SLOT)
        if slot != self._slot:
            if self._slot >= 0 and slot - self._slot < SLOTS:
                for passed in range(self._slot, slot):
                    busy = self._slot_busy and passed == self._slot
                    place = passed % SLOTS
                    self._slots[place] += SLOT_GAIN * (float(busy) - self._slots[place])
            self._slot, self._slot_busy = slot, False
        self._slot_busy = self._slot_busy or is_busy

    def keeps(self, now: float, startup: float, risk: float) -> bool:
        """Return whether an idle replica is worth its time."""
        return self._worth(now, 0.0, price(startup, risk)) > 0

    def prewarms(self, now: float, startup: float, risk: float) -> bool:
        """Return whether a start without a request is worth its cost: a request is likely right after it."""
        return self._worth(now, startup, price(startup, risk), within=2 * startup + 60.0) > 0

    def keep_seconds(self, now: float, startup: float, risk: float) -> float:
        """Return the seconds of idleness after which a replica that is idle now stops, at most six hours."""
        cost = price(startup, risk)
        age = 0.0
        step = SHORTEST_IDLE
        while age < HORIZON and self._worth(now + age, 0.0, cost, age=age) > 0:
            age += step
            step *= BIN_RATIO
        return age

    def _count(self, gap: float) -> None:
        index = self._index(gap)
        decay = math.exp(-1 / MEMORY)
        for i in range(BINS):
            self._counts[i] = PRIOR + (self._counts[i] - PRIOR) * decay
        self._counts[index] += 1

    def _worth(
        self, now: float, startup: float, cost: float, *, within: float = HORIZON, age: float | None = None
    ) -> float:
        """Return the highest net value of a replica that stays for some time, in seconds of an idle replica.

        The hazard rate of the next request is that of the histogram of idle times at this age, in proportion
        to the requests of the slot of the day. The value is 0 if a replica is worth less than its cost.
        """
        if self._last == -math.inf:
            return 0.0
        if age is None:
            age = max(now - self._last, 0.0)
        if age >= _EDGES[-1]:
            return 0.0
        mean = sum(self._slots) / SLOTS + 1e-3
        survival = 1.0
        total = best = elapsed = 0.0
        tail = self._tail(age)
        index = self._index(age)
        while elapsed < within and survival > 1e-3 and index < BINS:
            step = min(_EDGES[index + 1] - age - elapsed, SLOT, within - elapsed)
            width = _EDGES[index + 1] - (_EDGES[index] if index else 0.0)
            weight = self._counts[index]
            hazard = weight / max(tail + 0.5 * weight, 1e-9) / width
            slot_ratio = (self._slots[int((now + elapsed) // SLOT) % SLOTS] + 1e-3) / mean
            hazard *= min(max(slot_ratio, SLOT_LIMITS[0]), SLOT_LIMITS[1])
            arrival_probability = 1 - math.exp(-hazard * step)
            value = cost if elapsed >= startup else 0.0
            total += survival * (arrival_probability * value - step * (1 - 0.5 * arrival_probability))
            best = max(best, total)
            survival *= 1 - arrival_probability
            elapsed += step
            while index < BINS and age + elapsed >= _EDGES[index + 1] - 1e-6:
                index += 1
                weight = self._counts[index] if index < BINS else 0.0
                tail = max(tail - weight, TAIL_PRIOR)
        return best

    def _index(self, age: float) -> int:
        if age < SHORTEST_IDLE:
            return 0
        return min(int(math.log(age / SHORTEST_IDLE) / math.log(BIN_RATIO) + 1e-9), BINS - 1)

    def _tail(self, age: float) -> float:
        """Return the weight of idle times in the bins after that of `age`."""
        return TAIL_PRIOR + sum(self._counts[self._index(age) + 1 :])

    def state(self) -> dict[str, Any]:
        """Return the learned state for JSON."""
        last = self._last if self._last > -math.inf else None
        return {"counts": list(self._counts), "slots": list(self._slots), "last": last}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a result of `state`; a state of another shape is ignored."""
        if len(state["counts"]) == BINS and len(state["slots"]) == SLOTS:
            self._counts, self._slots = array("d", state["counts"]), array("d", state["slots"])
            self._last = -math.inf if state["last"] is None else float(state["last"])


def price(startup: float, risk: float) -> float:
    """Return the cost of a request that waits for a start, in seconds of an idle replica."""
    return PRICE_SECONDS * max(startup, 5.0) / PRICE_PER_START * RISK / risk
