"""When the last replica goes, and when the first one comes before it is asked for. Pure.

A replica that idles costs its time; one that is missing costs the request that waits for a start. What idle times were
like, and at which times of the day requests come, say how likely the next one is (as in Shahrad et al., "Serverless in
the Wild", USENIX ATC 2020, with the economics of ski rental instead of percentiles).
"""

import math
from array import array
from typing import Any

from autoscaler.forecast.profile import DAY

PRICE_SECONDS = 10_800.0
"""What a request that waits for a start is worth, in seconds of an idle replica, at a risk of 0.5 percent."""
PRICE_PER_START = 60.0
"""The start-up time at which that holds: a longer wait is worth more in proportion."""
RISK = 0.5
FIRST = 5.0
"""Seconds: the shortest idle time that is told apart."""
STEP = 1.25
"""Ratio of the ends of a bin of idle times."""
BINS = 62
"""Up to 5 s x 1.25^62 = 59 days."""
NEVER = 1.0
"""Idle times that are assumed to be longer than all bins: an age that nothing has reached yet is no reason to
expect an end."""
PRIOR = 0.15
"""Idle times that are assumed in each bin before any was seen: as likely to be short as long."""
MEMORY = 200.0
"""Idle times after which one weighs 1/e."""
SLOT = 900.0
"""Seconds of a slot of the day: people are that punctual."""
SLOTS = round(DAY / SLOT)
SLOT_GAIN = 0.15
"""Weight of the last day in a slot's share."""
SLOT_LIMITS = (0.1, 10.0)
"""Of a slot's rate over the mean one."""
HORIZON = 6 * 3600.0
"""Seconds into the future that are weighed."""

_EDGES = tuple(FIRST * STEP**i for i in range(BINS + 1))


class IdleTimes:
    """What is known of one target's idle times."""

    def __init__(self) -> None:
        self._counts = array("d", [PRIOR] * BINS)
        self._slots = array("d", [0.5] * SLOTS)
        """Share of days on which a request came in the slot, recent days weighing more."""
        self._slot, self._slot_busy = -1, False
        self._last = -math.inf

    @property
    def last(self) -> float:
        """Unix seconds of the last request; minus infinity before the first."""
        return self._last

    def begin(self, now: float) -> None:
        """Count from now on where there was no request yet: a replica that is new is about to be asked."""
        if self._last == -math.inf:
            self._last = now

    def shift(self, seconds: float) -> None:
        """Take a clock that was set by so much: the silence so far is as long as before."""
        self._last += seconds

    def observe(self, start: float, end: float, is_busy: bool) -> None:  # noqa: FBT001 the one fact of a reading
        """Take a reading: whether requests came or were worked on between `start` and `end`."""
        if is_busy:
            gap = start - self._last
            if gap >= FIRST and self._last > -math.inf:
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
        """Tell whether a replica that idles is worth its time."""
        return self._worth(now, 0.0, price(startup, risk)) > 0

    def prewarms(self, now: float, startup: float, risk: float) -> bool:
        """Tell whether a start now is worth it, though nobody asks: a request is likely right after it."""
        return self._worth(now, startup, price(startup, risk), within=2 * startup + 60.0) > 0

    def keep_seconds(self, now: float, startup: float, risk: float) -> float:
        """Return the seconds of idleness after which a replica that idles now will go, at most six hours."""
        cost = price(startup, risk)
        age = 0.0
        step = FIRST
        while age < HORIZON and self._worth(now + age, 0.0, cost, age=age) > 0:
            age += step
            step *= STEP
        return age

    def _count(self, gap: float) -> None:
        index = min(int(math.log(gap / FIRST) / math.log(STEP)), BINS - 1)
        decay = math.exp(-1 / MEMORY)
        for i in range(BINS):
            self._counts[i] = PRIOR + (self._counts[i] - PRIOR) * decay
        self._counts[index] += 1

    def _worth(
        self, now: float, startup: float, cost: float, *, within: float = HORIZON, age: float | None = None
    ) -> float:
        """Return the most that a replica from now on can be worth, in seconds; 0 if it never pays."""
        if self._last == -math.inf:
            return 0.0
        if age is None:
            age = max(now - self._last, 0.0)
        if age >= _EDGES[-1]:
            return 0.0
        mean = sum(self._slots) / SLOTS + 1e-3
        alive = 1.0
        total = best = ahead = 0.0
        after = self._tail(age)
        index = self._index(age)
        while ahead < within and alive > 1e-3 and index < BINS:
            step = min(_EDGES[index + 1] - age - ahead, SLOT, within - ahead)
            width = _EDGES[index + 1] - (_EDGES[index] if index else 0.0)
            weight = self._counts[index]
            hazard = weight / max(after + 0.5 * weight, 1e-9) / width
            relative = (self._slots[int((now + ahead) // SLOT) % SLOTS] + 1e-3) / mean
            hazard *= min(max(relative, SLOT_LIMITS[0]), SLOT_LIMITS[1])
            arrives = 1 - math.exp(-hazard * step)
            pays = cost if ahead >= startup else 0.0
            total += alive * (arrives * pays - step * (1 - 0.5 * arrives))
            best = max(best, total)
            alive *= 1 - arrives
            ahead += step
            while index < BINS and age + ahead >= _EDGES[index + 1] - 1e-6:
                index += 1
                after = max(after - weight, NEVER)
                weight = self._counts[index] if index < BINS else 0.0
        return best

    def _index(self, age: float) -> int:
        if age < FIRST:
            return 0
        return min(int(math.log(age / FIRST) / math.log(STEP) + 1e-9), BINS - 1)

    def _tail(self, age: float) -> float:
        """Return the weight of idle times in the bins after that of `age`."""
        return NEVER + sum(self._counts[self._index(age) + 1 :])

    def state(self) -> dict[str, Any]:
        """Return what was learned, for JSON."""
        last = self._last if self._last > -math.inf else None
        return {"counts": list(self._counts), "slots": list(self._slots), "last": last}

    def restore(self, state: dict[str, Any]) -> None:
        """Take what `state` returned; of another shape it is ignored."""
        if len(state["counts"]) == BINS and len(state["slots"]) == SLOTS:
            self._counts, self._slots = array("d", state["counts"]), array("d", state["slots"])
            self._last = -math.inf if state["last"] is None else float(state["last"])


def price(startup: float, risk: float) -> float:
    """Return what a request that waits for a start is worth, in seconds of an idle replica."""
    return PRICE_SECONDS * max(startup, 5.0) / PRICE_PER_START * RISK / risk
