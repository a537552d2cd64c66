import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.simulate.plant import Plant
from autoscaler.simulate.queue_plant import QueuePlant
from autoscaler.simulate.routed_plant import PERMITS, RoutedPlant
from autoscaler.simulate.workloads.load import TIMEOUT, Floats, Replica, Requests

REPLICA = Replica(rate=2.0, concurrency=2, service_seconds=1.0)


def requests(times: list[float] | Floats, service: float = 1.0) -> Requests:
    count = len(times)
    return Requests(np.sort(np.array(times, float)), np.ones(count), np.full(count, service))


def played(plant: Plant, ready: list[int], each: int) -> Plant:
    for step, count in enumerate(ready):
        plant.advance((step + 1) * each, count)
    return plant


def drawn(count: int, seconds: float, seed: int) -> Requests:
    return requests(np.random.default_rng(seed).random(count) * seconds)


@given(
    count=st.integers(1, 150),
    seed=st.integers(0, 1000),
    ready=st.lists(st.integers(0, 5), min_size=1, max_size=10),
)
@settings(max_examples=40)
def test_each_request_is_served_once_when_replicas_come_and_go(
    count: int, seed: int, ready: list[int]
) -> None:
    load = drawn(count, 5.0 * len(ready), seed)
    plant = RoutedPlant(load, REPLICA)
    for step, replicas in enumerate(ready):
        plant.advance((step + 1) * 5, replicas)
        now = plant.counts()
        assert now.finished + now.dropped + now.busy + now.waiting == now.arrivals
        assert now.waiting >= 0
    played(plant, [*ready, *[3] * 60], 5)
    end = plant.counts()
    assert (end.finished, end.busy, end.waiting, end.dropped) == (count, 0, 0, 0)
    assert end.latency_sum == pytest.approx(float(plant.waits().seconds.sum()) + count)


@given(
    count=st.integers(1, 200),
    seed=st.integers(0, 1000),
    ready=st.lists(st.integers(0, 6), min_size=1, max_size=8),
)
@settings(max_examples=60)
def test_waits_are_never_shorter_than_in_a_shared_queue_without_removals(
    count: int, seed: int, ready: list[int]
) -> None:
    load, counts = drawn(count, 40.0, seed), sorted(ready)
    routed = played(RoutedPlant(load, REPLICA), counts, 5).waits().seconds
    shared = played(QueuePlant(load, REPLICA), counts, 5).waits().seconds
    assert routed.sum() >= shared.sum() - 1e-9
    assert routed.max(initial=0) >= shared.max(initial=0) - 1e-9


@given(count=st.integers(1, 150), seed=st.integers(0, 1000))
@settings(max_examples=30)
def test_waits_of_a_single_replica_are_those_of_a_shared_queue(count: int, seed: int) -> None:
    load, ready = drawn(count, 30.0, seed), [1] * 8
    routed, shared = played(RoutedPlant(load, REPLICA), ready, 5), played(QueuePlant(load, REPLICA), ready, 5)
    assert routed.waits().seconds == pytest.approx(shared.waits().seconds)
    assert routed.counts()._replace(latency_sum=0) == shared.counts()._replace(latency_sum=0)
    assert routed.counts().latency_sum == pytest.approx(shared.counts().latency_sum)


def test_queued_requests_stay_at_their_replica_when_another_becomes_ready() -> None:
    load, ready = requests(np.linspace(0.0, 0.9, 20)), [1, 2, 2, 2]
    routed, shared = played(RoutedPlant(load, REPLICA), ready, 5), played(QueuePlant(load, REPLICA), ready, 5)
    assert routed.waits().seconds.max() == pytest.approx(8.1, abs=0.1)
    assert shared.waits().seconds.max() < 7


def test_removed_replica_serves_its_queue_and_is_paid_for_it() -> None:
    plant = RoutedPlant(requests([0.0] * 12), REPLICA, ending=2.0)
    plant.advance(1, 1)
    for second in range(2, 12):
        plant.advance(second, 0)
    assert plant.counts().finished == 12
    assert plant.draining == 4 + 2  # it is idle after 6 s, of which it was ready for one; then it ends


def test_less_loaded_of_two_replicas_gives_fewer_waits_than_random_choice() -> None:
    load = drawn(3000, 400.0, 3)  # 94 % of what four replicas serve
    waits = played(RoutedPlant(load, REPLICA), [4] * 100, 4).waits()
    shared = played(QueuePlant(load, REPLICA), [4] * 100, 4).waits()
    assert shared.seconds.mean() < waits.seconds.mean() < 3 * shared.seconds.mean()


def test_replica_queue_drops_requests_at_the_timeout() -> None:
    plant = RoutedPlant(requests([0.0, 0.0, 1.0], service=400.0), Replica(1.0, 1, 400.0))
    played(plant, [1] * 70, 5)
    end = plant.counts()
    assert (end.dropped, end.busy, end.waiting) == (2, 1, 0)
    assert plant.waits().seconds.tolist() == [0, TIMEOUT, TIMEOUT]


def test_held_requests_go_to_the_next_replica_when_the_first_is_full() -> None:
    count = 2 * PERMITS
    plant = RoutedPlant(requests([0.0] * count), REPLICA)
    plant.advance(1, 0)
    plant.advance(2, 1)
    plant.advance(2 + PERMITS // 2, 2)
    assert plant.counts().finished > 0.9 * count  # the first alone has done little over half of them
