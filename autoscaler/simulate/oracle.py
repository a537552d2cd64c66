"""Schedules with perfect knowledge of the load, the yardsticks of all policies. Pure.

A schedule is the count of ready replicas in each second. In no schedule does a request wait too long: each
request gets a slot by its deadline, its arrival plus the allowed wait.

Plain schedules follow the load. For a fluid, the work of each second is spread over the allowed wait, in
whole replicas. For single requests there are three: each request is served at once; a slot opens when the
first waiting request reaches its deadline; the fluid's schedule, with further replicas where a request would
miss its deadline.

Lean schedules let a queue absorb bursts. Each begins with a base, the mean load over a span around each
second, rounded to whole replicas, and adds replicas only where a deadline would be missed. The true minimum
is hard to compute; it lies between the cheapest lean schedule and the pure work.

A replica is paid from its order, one start-up time before it is needed, until it is no longer needed. It is
kept through a gap that is shorter than a start. Starts never fail, and take exactly the typical time.
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import maximum_filter1d, uniform_filter1d

from autoscaler.simulate.queue_plant import QueuePlant
from autoscaler.simulate.workloads.load import Floats, Flow, Replica, Requests

SPANS = (15, 60)
"""Seconds over which the load is averaged for a base: about a burst, and about a start."""
ROUNDINGS = (0.5, 1.0)
"""Added to a base before it is rounded down: 0.5 rounds to the nearest count, 1 rounds up."""
PARTS_PER_SECOND = 10
"""Resolution of the count of busy slots: an end and a start in one part of a second count as overlapping."""
FEW = 2.0
"""Mean busy replicas up to which only the first two plain schedules are computed: a smoothed load in so few
whole replicas is of no use."""


@dataclass(frozen=True, slots=True)
class Schedules:
    """Schedules of one load: arrays of the ready replicas in each second of the run."""

    plain: tuple[Floats, ...]
    """The first spreads a fluid over the allowed wait, or serves each request at once."""
    lean: tuple[Floats, ...]


@dataclass(frozen=True, slots=True)
class Oracle:
    """A schedule to which scores are compared: counts for each second of the run. `oracle_of` takes the
    cheapest plain one.
    """

    need: Floats
    """Ready replicas of the schedule."""
    alive: Floats
    """Paid replicas of the schedule: ready or starting."""
    least: Floats
    """Paid replicas of the cheapest schedule of all, lean ones included."""


def oracle_of(schedules: Schedules, startup: float) -> Oracle:
    """Return the cheapest plain schedule at a start-up time in seconds."""

    def cheapest(schedules: tuple[Floats, ...]) -> tuple[Floats, Floats]:
        """Return the ready and the paid replicas of the cheapest schedule."""
        paid = [(need, ordered_ahead(need, startup)) for need in schedules]
        return min(paid, key=lambda candidate: float(candidate[1].sum()))

    need, alive = cheapest(schedules.plain)
    return Oracle(need, alive, cheapest((*schedules.plain, *schedules.lean))[1])


def ordered_ahead(need: Floats, startup: float) -> Floats:
    """Return the paid replicas of each second: the highest need from now until a start-up time later.

    Args:
        need: ready replicas of each second.
        startup: start-up time in seconds.
    """
    ahead = math.ceil(startup)
    padded = np.concatenate([need, np.zeros(ahead)])
    alive: Floats = maximum_filter1d(padded, ahead + 1, origin=-((ahead + 1) // 2))
    return alive[: len(need)]


def of_flow(flow: Flow, replica: Replica, wait: float, *, lean: bool) -> Schedules:
    """Return the schedules for a fluid whose requests may wait for `wait` seconds."""
    bases = _bases(flow.work, replica.rate) if lean else []
    lean_schedules = tuple(_base_that_meets_deadlines(flow, replica.rate, wait, base) for base in bases)
    return Schedules((_spread(flow.work, replica.rate, wait),), lean_schedules)


def of_requests(requests: Requests, replica: Replica, wait: float, seconds: int, *, lean: bool) -> Schedules:
    """Return the schedules for single requests that may wait for `wait` seconds, in a run of `seconds`."""
    postponed = _postponed(requests.times, requests.service, wait)
    plain = [_replicas(starts, requests.service, replica, seconds) for starts in (requests.times, postponed)]
    # Schedules are of slots: the work of a request is here the capacity of its slot in its service time.
    slot_work = requests.service * replica.rate / replica.concurrency
    work = Requests(requests.times, slot_work, requests.service).per_second(seconds).work
    if work.mean() <= FEW * replica.rate:
        return Schedules(tuple(plain), ())
    plain.append(_opened(requests, replica, wait, _spread(work, replica.rate, wait)))
    bases = _bases(work, replica.rate) if lean else []
    return Schedules(tuple(plain), tuple(_opened(requests, replica, wait, base) for base in bases))


def _spread(work: Floats, rate: float, wait: float) -> Floats:
    """Return the replicas for work spread over the allowed wait, which meet every deadline.

    Args:
        work: of each second.
        rate: work per second of one replica.
        wait: allowed seconds.
    """
    span = max(math.floor(wait), 1)
    total = np.concatenate([np.zeros(span), np.cumsum(work)])
    work_of_span = np.maximum(total[span:] - total[:-span], 0)
    need: Floats = np.ceil(work_of_span / span / rate - 1e-9)
    return need


def _bases(work: Floats, rate: float) -> list[Floats]:
    """Return the bases of lean schedules, in replicas."""
    loads = [uniform_filter1d(work, span, mode="nearest") / rate for span in SPANS if span < len(work)]
    return [np.floor(load + up - 1e-9) for load in loads for up in ROUNDINGS]


def _base_that_meets_deadlines(flow: Flow, rate: float, wait: float, base: Floats) -> Floats:
    """Return the base with further replicas, so that the middle request of each second meets its deadline.

    The further replicas are as few, and begin as late, as the deadline allows.

    Args:
        flow: the load.
        rate: work per second of one replica.
        wait: allowed seconds.
        base: replicas of each second.
    """
    span = max(math.floor(wait), 1)
    entered: list[float] = np.cumsum(flow.work).tolist()
    """Total work that has arrived by the end of each second."""
    middle: list[float] = (np.cumsum(flow.work) - flow.work / 2).tolist()
    """Total work that has arrived by the middle of each second."""
    ready: list[float] = base.tolist()
    served = [0.0] * (len(ready) + 1)
    """Total work that was served by the beginning of each second."""
    queue_since = 0
    """The last second that began without waiting work: earlier replicas would have nothing to serve."""
    for second in range(len(ready)):
        entered_before = entered[second - 1] if second else 0.0
        if served[second] >= entered_before - 1e-9:
            queue_since = second
        if second >= span:
            # A middle request arrives in the middle of its second: its deadline is the middle of this one.
            due = middle[second - span]
            while (short := due - served[second] - rate * ready[second] / 2) > 1e-9 * rate:
                more = math.ceil(short / (rate * (second - queue_since + 0.5)))
                seconds_before = math.ceil(short / (rate * more) - 0.5)
                since = max(second - seconds_before, queue_since)
                for earlier in range(since, second + 1):
                    ready[earlier] += more
                for earlier in range(since, second):
                    served[earlier + 1] = min(served[earlier] + rate * ready[earlier], entered[earlier])
        served[second + 1] = min(served[second] + rate * ready[second], entered[second])
    return np.array(ready)


def _opened(requests: Requests, replica: Replica, wait: float, base: Floats) -> Floats:
    """Return the base with a further replica whenever the first waiting request would miss its deadline.

    A further replica lasts for the service time of the request.
    """
    plant = QueuePlant(requests, replica)
    ready: list[float] = base.tolist()
    for second in range(len(ready)):
        plant.advance(second, int(ready[second]))
        while (service_seconds := plant.overdue(second + 1 - wait)) is not None:
            for later in range(second, min(second + math.ceil(service_seconds), len(ready))):
                ready[later] += 1
            plant.advance(second, int(ready[second]))
        plant.advance(second + 1, int(ready[second]))
    return np.array(ready)


def _replicas(starts: Floats, service: Floats, replica: Replica, seconds: int) -> Floats:
    """Return the replicas for the busy slots of each second, at their peak in it.

    Args:
        starts: start of service of each request, in seconds of the run.
        service: service time of each request, in seconds.
        replica: slots of a replica.
        seconds: length of the run.
    """
    parts = seconds * PARTS_PER_SECOND
    first = np.clip(np.floor(starts * PARTS_PER_SECOND), 0, parts - 1).astype(np.int64)
    last = np.clip(np.ceil((starts + service) * PARTS_PER_SECOND), 1, parts).astype(np.int64)
    change = np.bincount(first, minlength=parts + 1) - np.bincount(last, minlength=parts + 1)
    busy_slots = np.cumsum(change[:parts])
    peaks = busy_slots.reshape(seconds, PARTS_PER_SECOND).max(axis=1)
    replicas: Floats = np.ceil(peaks / replica.concurrency)
    return replicas


def _postponed(times: Floats, service: Floats, wait: float) -> Floats:
    """Return the start of service of each request if a slot opens only at a deadline.

    A slot opens at the deadline of the first waiting request, serves the next requests that wait, and closes
    when no request waits. All arguments and results are in seconds.
    """
    starts = np.empty(len(times))
    ends: list[float] = []
    """A heap: when each open slot is free again."""
    for request, (arrived, seconds) in enumerate(zip(times.tolist(), service.tolist(), strict=True)):
        # No request waited for the slots that were free before this arrival: they are closed.
        while ends and ends[0] < arrived:
            heapq.heappop(ends)
        is_free_in_time = bool(ends) and ends[0] <= arrived + wait
        start = heapq.heappop(ends) if is_free_in_time else arrived + wait
        starts[request] = start
        heapq.heappush(ends, start + seconds)
    return starts
