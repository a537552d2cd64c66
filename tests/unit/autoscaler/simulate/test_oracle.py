import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoscaler.simulate.oracle import of_flow, of_requests, oracle_of, ordered_ahead
from autoscaler.simulate.plant import FluidPlant, Plant
from autoscaler.simulate.queue_plant import QueuePlant
from autoscaler.simulate.workloads.load import Floats, Flow, Replica, Requests


def longest(plant: Plant, need: Floats) -> float:
    for second, replicas in enumerate(need.tolist()):
        plant.advance(second + 1, int(replicas))
    return float(plant.waits().seconds.max(initial=0))


def flow(*work: float) -> Flow:
    return Flow(np.array(work, float), np.array(work, float))


def crowd(seed: int, requests: int, seconds: float, mean: float) -> Requests:
    draws = np.random.default_rng(seed)
    times = np.sort(draws.uniform(0, seconds, requests))
    return Requests(times, np.ones(requests), draws.uniform(0.5, 1.5, requests) * mean)


def test_work_is_spread_over_the_wait_that_is_allowed() -> None:
    (need,) = of_flow(flow(0, 6, 0, 0, 0), Replica(1.0, 1, 1.0), 3, lean=False).plain
    assert need.tolist() == [0, 2, 2, 2, 0]


@example(counts=[0, 0, 0, 0, 9, 1, *[0] * 10], wait=1.0, rate=1.0)  # the line ends within a second
@given(
    counts=st.lists(st.integers(0, 50), min_size=5, max_size=120),
    wait=st.floats(1, 5),
    rate=st.sampled_from([1.0, 7.0, 40.0]),
)
@settings(max_examples=80)
def test_no_part_of_a_flow_waits_too_long_with_any_schedule(
    counts: list[int], wait: float, rate: float
) -> None:
    replica = Replica(rate, 7, 1.0)
    schedules = of_flow(flow(*counts), replica, wait, lean=True)
    for need in (*schedules.plain, *schedules.lean):
        assert longest(FluidPlant(flow(*counts), replica), need) <= wait + 1e-6


@given(seed=st.integers(0, 1000), slots=st.integers(1, 3))
@settings(max_examples=30)
def test_no_request_waits_too_long_with_any_schedule(seed: int, slots: int) -> None:
    requests, replica = crowd(seed, 200, 80, 6.0), Replica(slots / 6.0, slots, 6.0)
    schedules = of_requests(requests, replica, 4.0, 120, lean=True)
    at_once, late, *opened = (*schedules.plain, *schedules.lean)
    assert len(opened) > 1
    for need in (at_once, late, *opened):
        assert longest(QueuePlant(requests, replica), need) <= 4.0 + 1e-6


def test_lean_schedules_are_not_tried_where_a_replica_or_two_do() -> None:
    requests = crowd(1, 10, 600, 2.0)
    assert of_requests(requests, Replica(0.5, 1, 2.0), 2.0, 600, lean=True).lean == ()


def test_a_lean_schedule_costs_less_than_the_oracle_when_the_load_is_noisy() -> None:
    noisy = flow(*np.random.default_rng(1).poisson(30, 2000).astype(float))
    schedule = oracle_of(of_flow(noisy, Replica(2.0, 4, 2.0), 2.0, lean=True), 60)
    assert schedule.least.sum() < 0.9 * schedule.alive.sum()
    assert schedule.least.sum() >= noisy.work.sum() / 2.0


def test_replicas_are_paid_a_start_ahead_and_kept_through_shorter_gaps() -> None:
    need = np.array([0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0])
    assert ordered_ahead(need, 3).tolist() == [1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0]


def test_an_immediate_start_costs_just_the_need() -> None:
    need = np.array([0, 2, 0, 1.0])
    assert ordered_ahead(need, 0).tolist() == need.tolist()


def test_cost_rises_with_the_start_up() -> None:
    need = np.random.default_rng(0).integers(0, 5, 300).astype(float)
    costs = [ordered_ahead(need, startup).sum() for startup in (0, 5, 30, 120)]
    assert costs == sorted(costs)
    assert costs[0] == pytest.approx(need.sum())
