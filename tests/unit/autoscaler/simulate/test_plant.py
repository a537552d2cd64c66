import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.simulate.plant import FluidPlant, Plant
from autoscaler.simulate.queue_plant import QueuePlant
from autoscaler.simulate.workloads.load import TIMEOUT, Flow, Replica, Requests


def flow(*counts: float) -> Flow:
    return Flow(np.array(counts, float), np.array(counts, float))


def requests(*times_and_service: tuple[float, float]) -> Requests:
    times, service = np.array(times_and_service, float).T
    return Requests(times, np.ones(len(times)), service)


def replica_of(slots: int = 1) -> Replica:
    return Replica(rate=1.0, concurrency=slots, service_seconds=1.0)


def test_fluid_waits_for_earlier_arrivals() -> None:
    plant = FluidPlant(flow(4, 0, 0, 0), replica_of())
    plant.advance(4, 1)
    assert plant.waits().seconds.tolist() == pytest.approx([1.5])
    assert plant.counts().finished == 4


def test_a_fluid_does_not_wait_while_replicas_keep_up() -> None:
    plant = FluidPlant(flow(*[2] * 10), replica_of())
    plant.advance(10, 2)
    assert plant.waits().seconds.max() == 0


def test_requests_wait_for_the_first_ready_replica() -> None:
    plant = FluidPlant(flow(1, 1, 0, 0, 0, 0), replica_of())
    plant.advance(3, 0)
    plant.advance(6, 2)
    waits = plant.waits()
    assert waits.cold.tolist() == [1, 1]
    assert waits.seconds.tolist() == pytest.approx([2.75, 2.25])


def test_fluid_drops_work_at_the_timeout() -> None:
    plant = FluidPlant(flow(5, *[0] * 400), replica_of())
    plant.advance(401, 0)
    counts = plant.counts()
    assert (counts.dropped, counts.waiting, counts.finished) == (5, 0, 0)
    assert plant.waits().seconds.tolist() == pytest.approx([TIMEOUT], abs=1)


def test_the_number_of_requests_in_a_slot_follows_from_their_time() -> None:
    plant = FluidPlant(flow(*[3] * 20), Replica(4.0, 8, 2.0))
    plant.advance(20, 1)
    assert plant.counts().busy == pytest.approx(6)


def test_slots_are_given_in_order_of_arrival() -> None:
    plant = QueuePlant(requests((0, 3), (0.5, 1), (1, 1), (1.5, 1)), replica_of(slots=2))
    plant.advance(10, 1)
    assert plant.waits().seconds.tolist() == pytest.approx([0, 0, 0.5, 1.0])
    assert plant.counts().finished == 4


def test_a_removed_replica_ends_what_it_has_begun_and_is_paid_for_it() -> None:
    plant = QueuePlant(requests((0, 10), (0, 10), (4, 1)), replica_of())
    plant.advance(2, 2)
    plant.advance(4, 0)
    assert plant.draining == 4
    plant.advance(12, 0)
    counts = plant.counts()
    assert (counts.finished, counts.waiting) == (2, 1)


def test_a_request_that_meets_no_replica_is_cold_and_held() -> None:
    plant = QueuePlant(requests((1, 1), (2, 1)), replica_of())
    plant.advance(5, 0)
    assert (plant.counts().waiting, plant.counts().busy) == (2, 0)
    plant.advance(10, 1)
    waits = plant.waits()
    assert waits.cold.tolist() == [1, 1]
    assert waits.seconds.tolist() == pytest.approx([4, 4])


def test_queue_drops_requests_at_the_timeout() -> None:
    plant = QueuePlant(requests((0, 1), (200, 1)), replica_of())
    for second in range(5, 400, 5):
        plant.advance(second, 0)
    assert (plant.counts().dropped, plant.counts().waiting) == (1, 1)
    assert plant.waits().seconds[0] == TIMEOUT


def test_queued_requests_count_with_their_wait_until_now() -> None:
    plant = QueuePlant(requests((1, 1)), replica_of())
    plant.advance(8, 0)
    assert plant.waits().seconds.tolist() == [7]


@given(
    counts=st.lists(st.integers(0, 6), min_size=5, max_size=40),
    ready=st.lists(st.integers(0, 4), min_size=1, max_size=8),
)
@settings(max_examples=40)
def test_every_arrival_is_accounted_for(counts: list[int], ready: list[int]) -> None:
    at = np.repeat(np.arange(len(counts)) + 0.25, counts)
    plants: list[Plant] = [
        FluidPlant(flow(*counts), replica_of()),
        QueuePlant(Requests(at, np.ones(len(at)), np.ones(len(at))), replica_of()),
    ]
    for plant in plants:
        edges = np.linspace(0, len(counts), len(ready) + 1).astype(int).tolist()
        for replicas, end in zip(ready, edges[1:], strict=True):
            plant.advance(end, replicas)
        end = plant.counts()
        inside = end.waiting + (end.busy if isinstance(plant, QueuePlant) else 0)
        assert end.arrivals == sum(counts)
        assert end.finished + end.dropped + inside == pytest.approx(sum(counts))
        assert plant.waits().seconds.min(initial=0) >= 0


def test_both_plants_agree_on_a_large_load() -> None:
    draws = np.random.default_rng(3)
    counts = draws.poisson(np.where(np.arange(600) % 200 < 60, 60, 25)).astype(float)
    times = np.sort(np.repeat(np.arange(600), counts.astype(int)) + draws.random(int(counts.sum())))
    replica = Replica(10.0, 10, 1.0)
    single = QueuePlant(Requests(times, np.ones(len(times)), np.ones(len(times))), replica)
    fluid = FluidPlant(Flow(counts, counts), replica)
    for plant in (single, fluid):
        for second in range(5, 601, 5):
            plant.advance(second, 4)
    late = [
        float((waits.weights * (waits.seconds > 5)).sum() / waits.weights.sum())
        for waits in (single.waits(), fluid.waits())
    ]
    assert late[0] > 0.2
    assert late[0] == pytest.approx(late[1], rel=0.1)


def test_a_queue_counts_the_time_of_a_request_when_it_is_answered() -> None:
    requests = Requests(np.array([0.5, 0.5]), np.ones(2), np.array([4.0, 4.0]))
    plant = QueuePlant(requests, Replica(0.25, 1, 4.0))
    plant.advance(4, 1)
    assert (plant.counts().finished, plant.counts().latency_sum) == (0, 0)
    plant.advance(9, 1)
    assert (plant.counts().finished, plant.counts().latency_sum) == (2, 4 + 8)


@given(
    gaps=st.lists(st.sampled_from([0.0, 0.1, 0.5, 2.0, 90.0]), min_size=1, max_size=60),
    service=st.lists(st.sampled_from([0.2, 1.0, 7.0, 400.0]), min_size=1, max_size=60),
    ready=st.lists(st.tuples(st.sampled_from([1, 5, 60, 350]), st.integers(0, 4)), min_size=1, max_size=12),
)
@settings(max_examples=200)
def test_a_queue_serves_each_request_as_its_definition_says(
    gaps: list[float], service: list[float], ready: list[tuple[int, int]]
) -> None:
    times = np.cumsum(gaps)
    took = np.resize(np.array(service), len(times))
    plant = QueuePlant(Requests(times, np.ones(len(times)), took), replica_of(slots=2))
    expected = DefinedQueue(times.tolist(), took.tolist())
    for seconds, replicas in ready:
        expected.advance(expected.now + seconds, 2 * replicas)
        plant.advance(expected.now, replicas)
        counts = plant.counts()
        state = (counts.arrivals, counts.finished, counts.dropped, counts.busy)
        assert state == (expected.arrived, expected.finished, expected.dropped, len(expected.ends))
        assert counts.latency_sum == pytest.approx(expected.latency_sum)
        waits = plant.waits()
        assert waits.seconds.tolist() == pytest.approx(expected.waits_until_now())
        assert waits.cold.tolist() == expected.cold


class DefinedQueue:
    """A first-in-first-out queue before slots, one event after the other."""

    def __init__(self, times: list[float], service: list[float]) -> None:
        self.times, self.service = times, service
        self.now, self.latency_sum = 0.0, 0.0
        self.arrived = self.finished = self.dropped = 0
        self.waiting: list[int] = []
        self.ends: list[tuple[float, int]] = []
        self.waits: dict[int, float] = {}
        self.cold: list[float] = []

    def advance(self, until: float, slots: int) -> None:
        self._fill(self.now, slots)
        while True:
            arrival = self.times[self.arrived] if self.arrived < len(self.times) else np.inf
            end = min(self.ends, default=(np.inf, 0))
            if end[0] <= min(arrival, until):
                self.ends.remove(end)
                self.finished += 1
                self.latency_sum += end[0] - self.times[end[1]]
                self._fill(end[0], slots)
            elif end[0] > arrival and arrival < until:
                self.cold.append(0.0 if slots else 1.0)
                self.waiting.append(self.arrived)
                self.arrived += 1
                self._fill(arrival, slots)
            else:
                break
        for request in [each for each in self.waiting if self.times[each] <= until - TIMEOUT]:
            self.waiting.remove(request)
            self.waits[request] = TIMEOUT
            self.dropped += 1
        self.now = until

    def waits_until_now(self) -> list[float]:
        return [self.waits.get(each, self.now - self.times[each]) for each in range(self.arrived)]

    def _fill(self, now: float, slots: int) -> None:
        while self.waiting and len(self.ends) < slots:
            request = self.waiting.pop(0)
            self.waits[request] = now - self.times[request]
            self.ends.append((now + self.service[request], request))
