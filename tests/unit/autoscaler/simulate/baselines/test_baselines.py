import time

import pytest

from autoscaler.observation import Replicas
from autoscaler.simulate.baselines import BASELINES
from autoscaler.simulate.baselines.measures import Highest, ReadingWindow, Startups
from autoscaler.simulate.baselines.static import Static
from tests.unit.autoscaler.simulate.baselines.observations import BaselineService, history, inputs


def test_a_window_weighs_readings_by_their_span() -> None:
    window = ReadingWindow(60)
    window.add(40, 40, 3)
    window.add(60, 20, 6)
    assert window.mean() == pytest.approx(4)


def test_a_window_forgets_what_lies_before_it_even_within_a_reading() -> None:
    window = ReadingWindow(6)
    window.add(5, 5, 12)
    window.add(10, 5, 0)
    assert window.mean() == pytest.approx(12 * 1 / 6)
    window.add(15, 5, 0)
    assert window.mean() == 0


def test_filling_window_is_the_mean_of_its_readings() -> None:
    window = ReadingWindow(60)
    assert window.mean() == 0
    window.add(5, 5, 7)
    assert window.mean() == pytest.approx(7)


def test_the_highest_of_a_window_ends_with_the_window() -> None:
    highest = Highest(300)
    values = {0: 5, 100: 3, 299: 1, 300: 1, 399: 1, 400: 1}
    assert [highest.of(at, value) for at, value in values.items()] == [5, 5, 5, 3, 3, 1]


def test_a_startup_time_is_the_longest_of_the_recent_ones() -> None:
    startups = Startups(unknown=60, kept=3)
    assert startups.seconds == 60
    startups.see(Replicas(1, 1, started=(40, 20)))
    assert startups.seconds == 40
    startups.see(Replicas(1, 1, started=(10, 10)))
    assert startups.seconds == 20


def test_static_replicas_take_the_peak_of_the_history_at_seventy_percent() -> None:
    policy = Static(inputs(history=history([600.0, 42_000.0, 600.0])))
    assert BaselineService(policy).tick().replicas == 100


def test_static_replicas_without_a_history_are_the_maximum() -> None:
    assert BaselineService(Static(inputs(most=30))).tick().replicas == 30


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_keeps_within_bounds(name: str) -> None:
    service = BaselineService(BASELINES[name](inputs(least=2, most=7)), ready=2)
    up = service.ticks(3600, 500, rate=500, usage=1)
    down = service.ticks(3600, 0, usage=0)
    assert set(up + down) <= set(range(2, 8))
    if name != "static":
        assert (up[-1], down[-1]) == (7, 2)


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_holds_without_readings(name: str) -> None:
    service = BaselineService(BASELINES[name](inputs(least=1, most=9)), ready=1)
    service.ticks(3600, 35, rate=35, usage=0.9)
    before = service.desired
    assert before > 1
    for _ in range(round(3600 / service.policy.interval)):
        assert service.tick(read=False).replicas == before


@pytest.mark.parametrize("name", ["kpa", "kpa tuned", "keda", "wva", "ray", "seasonal naive", "last value"])
def test_baselines_with_scale_to_zero_reach_zero_and_wake_for_held_requests(name: str) -> None:
    service = BaselineService(BASELINES[name](inputs()), ready=1)
    service.ticks(600, 5, usage=0.5)
    service.ticks(3600, 0, usage=0)
    assert service.desired == 0
    assert max(service.tick(3).replicas for _ in range(round(35 / service.policy.interval) + 1)) >= 1


@pytest.mark.parametrize("name", ["hpa", "aibrix", "dynamo", "ahpa"])
def test_baselines_without_scale_to_zero_keep_a_replica(name: str) -> None:
    service = BaselineService(BASELINES[name](inputs()), ready=1)
    assert set(service.ticks(3600, 0, usage=0)) == {1}


@pytest.mark.parametrize("name", BASELINES)
def test_a_decision_is_cheap(name: str) -> None:
    service = BaselineService(BASELINES[name](inputs(history=history([600.0] * 1440))), ready=10)
    service.ticks(600, 70)
    started = time.thread_time()
    ticks = 2000
    for _ in range(ticks):
        service.tick(70)
    assert (time.thread_time() - started) / ticks < 200e-6
