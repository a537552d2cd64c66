"""Schedules with perfect knowledge, the yardsticks of all policies. No schedule lets a request wait too long.
Pure.

`Oracle` schedules what each time needs. For a fluid that is the work of each second, spread over the allowed
wait, in whole replicas. For single requests it is the cheapest of three schedules: each request is served at
once; a slot opens when the first waiting request reaches its deadline; the fluid's schedule, with more
replicas where a request would miss its deadline.

Lean schedules also use queues: each has a smooth base, the mean load around each second over a span, rounded,
and where a deadline would be missed as many further replicas as meet it, as early as there is work for them.
The true minimum is hard to compute; it lies between the cheapest lean schedule and the pure work.

Cost of both: a replica is paid from its order, one start-up time before it is needed, until it is no longer
needed. It is kept through a gap that is shorter than a start, hence the maximum over the next start-up time.
Starts never fail and take exactly the typical time.
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import maximum_filter1d, uniform_filter1d

from autoscaler.simulate.queue_plant import QueuePlant
from autoscaler.simulate.workloads.load import Floats, Flow, Replica, Requests

SPANS = (15, 60)
"""Spans in seconds over which a base is smoothed, from a burst to the duration of starts."""
ROUNDINGS = (0.5, 1.0)
"""Added before a base is rounded down; small deficits are met by further replicas."""
PARTS = 10
"""Seconds within which an end and a start count as overlapping."""
FEW = 2.0
"""Mean busy replicas up to which a smooth base is of no use."""


@dataclass(frozen=True, slots=True)
class Schedules:
    """Ready replicas in each second."""

    plain: tuple[Floats, ...]
    """Schedules of the oracle, which takes the cheapest; the first is the plainest."""
    lean: tuple[Floats, ...]
    """Schedules that use queues."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """Counts for each second of the run."""

    need: Floats
    """Replicas that must be ready."""
    alive: Floats
    """Replicas that are paid."""
    least: Floats
    """Replicas that the cheapest schedule pays."""


def oracle_of(schedules: Schedules, startup: float) -> Oracle:
    """Return the oracle of a start-up time."""

    def cheapest(schedules: tuple[Floats, ...]) -> tuple[Floats, Floats]:
        paid = [(need, ordered_ahead(need, startup)) for need in schedules]
        return min(paid, key=lambda candidate: float(candidate[1].sum()))

    need, alive = cheapest(schedules.plain)
    return Oracle(need, alive, cheapest((*schedules.plain, *schedules.lean))[1])


def ordered_ahead(need: Floats, startup: float) -> Floats:
    """Return the paid replicas of a need: each is ordered one start-up time ahead."""
    ahead = math.ceil(startup)
    padded = np.concatenate([need, np.zeros(ahead)])
    alive: Floats = maximum_filter1d(padded, ahead + 1, origin=-((ahead + 1) // 2))
    return alive[: len(need)]


def of_flow(flow: Flow, replica: Replica, wait: float, *, lean: bool) -> Schedules:
    """Return the schedules for a fluid."""
    bases = _bases(flow.work, replica.rate) if lean else []
    met = tuple(_met(flow, replica.rate, wait, base) for base in bases)
    return Schedules((_spread(flow.work, replica.rate, wait),), met)


def of_requests(requests: Requests, replica: Replica, wait: float, seconds: int, *, lean: bool) -> Schedules:
    """Return the schedules for single requests."""
    late = _postponed(requests.times, requests.service, wait)
    plain = [_replicas(starts, requests.service, replica, seconds) for starts in (requests.times, late)]
    busy = Requests(requests.times, requests.service * replica.rate / replica.concurrency, requests.service)
    work = busy.per_second(seconds).work
    if work.mean() <= FEW * replica.rate:
        return Schedules(tuple(plain), ())
    plain.append(_opened(requests, replica, wait, _spread(work, replica.rate, wait)))
    bases = _bases(work, replica.rate) if lean else []
    return Schedules(tuple(plain), tuple(_opened(requests, replica, wait, base) for base in bases))


def _spread(work: Floats, rate: float, wait: float) -> Floats:
    """Return the replicas for work spread over the allowed wait; any such capacity meets every deadline."""
    span = max(math.floor(wait), 1)
    total = np.concatenate([np.zeros(span), np.cumsum(work)])
    need: Floats = np.ceil(np.maximum(total[span:] - total[:-span], 0) / span / rate - 1e-9)
    return need


def _bases(work: Floats, rate: float) -> list[Floats]:
    loads = [uniform_filter1d(work, span, mode="nearest") / rate for span in SPANS if span < len(work)]
    return [np.floor(load + up - 1e-9) for load in loads for up in ROUNDINGS]


def _met(flow: Flow, rate: float, wait: float, base: Floats) -> Floats:
    """Return the base with the further replicas that the middle request of each second needs for its
    deadline.
    """
    span = max(math.floor(wait), 1)
    entered: list[float] = np.cumsum(flow.work).tolist()
    middle: list[float] = (np.cumsum(flow.work) - flow.work / 2).tolist()
    ready: list[float] = base.tolist()
    unserved = [0.0] * (len(ready) + 1)
    """Totals at the end of the previous second."""
    busy_since = 0
    for second in range(len(ready)):
        if unserved[second] >= (entered[second - 1] if second else 0.0) - 1e-9:
            busy_since = second
        if second >= span:
            due = middle[second - span]
            while (short := due - unserved[second] - rate * ready[second] / 2) > 1e-9 * rate:
                more = math.ceil(short / (rate * (second - busy_since + 0.5)))
                since = max(second - math.ceil(short / (rate * more) - 0.5), busy_since)
                for earlier in range(since, second + 1):
                    ready[earlier] += more
                for earlier in range(since, second):
                    unserved[earlier + 1] = min(unserved[earlier] + rate * ready[earlier], entered[earlier])
        unserved[second + 1] = min(unserved[second] + rate * ready[second], entered[second])
    return np.array(ready)


def _opened(requests: Requests, replica: Replica, wait: float, base: Floats) -> Floats:
    """Return the base with a further replica whenever the first waiting request would miss its deadline."""
    plant = QueuePlant(requests, replica)
    ready: list[float] = base.tolist()
    for second in range(len(ready)):
        plant.advance(second, int(ready[second]))
        while (service := plant.overdue(second + 1 - wait)) is not None:
            for later in range(second, min(second + math.ceil(service), len(ready))):
                ready[later] += 1
            plant.advance(second, int(ready[second]))
        plant.advance(second + 1, int(ready[second]))
    return np.array(ready)


def _replicas(starts: Floats, service: Floats, replica: Replica, seconds: int) -> Floats:
    """Return the highest count of a schedule in each second."""
    parts = seconds * PARTS
    first = np.clip(np.floor(starts * PARTS), 0, parts - 1).astype(np.int64)
    last = np.clip(np.ceil((starts + service) * PARTS), 1, parts).astype(np.int64)
    change = np.bincount(first, minlength=parts + 1) - np.bincount(last, minlength=parts + 1)
    slots = np.cumsum(change[:parts]).reshape(seconds, PARTS).max(axis=1)
    replicas: Floats = np.ceil(slots / replica.concurrency)
    return replicas


def _postponed(times: Floats, service: Floats, wait: float) -> Floats:
    """Return the starts of service if slots open at the first waiting request's deadline and then close."""
    starts = np.empty(len(times))
    ends: list[float] = []
    for request, (arrived, seconds) in enumerate(zip(times.tolist(), service.tolist(), strict=True)):
        # Slots that ended before this arrival had no request left: they are closed.
        while ends and ends[0] < arrived:
            heapq.heappop(ends)
        free = bool(ends) and ends[0] <= arrived + wait
        start = heapq.heappop(ends) if free else arrived + wait
        starts[request] = start
        heapq.heappush(ends, start + seconds)
    return starts
