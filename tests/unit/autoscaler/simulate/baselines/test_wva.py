import pytest

from autoscaler.simulate.baselines.wva import Wva, step
from tests.unit.autoscaler.simulate.baselines.observations import BaselineService, inputs


@pytest.mark.parametrize(
    ("cache", "queue", "change"),
    [
        (0.69, 0, 0),  # a tenth and more is spare, but not with a replica less
        (0.71, 0, 1),
        (0.95, 0, 1),
        (0.1, 1.9, 0),
        (0.1, 2.1, 1),
        (0.1, 6.0, 1),
        (0.62, 0, -1),  # 0.62 * 10 / 9 = 0.689
        (0.64, 0, 0),  # 0.64 * 10 / 9 = 0.711
        (0.1, 1.7, -1),
        (0.1, 1.85, 0),
    ],
)
def test_replicas_change_by_spare_cache_and_queue(cache: float, queue: float, change: int) -> None:
    assert step(10, cache, queue) == change


def test_last_replica_is_not_removed_for_idleness() -> None:
    assert step(1, 0.0, 0.0) == 0


def test_a_replica_is_added_each_minute_at_most() -> None:
    service = BaselineService(Wva(inputs()), ready=2)
    counts = service.ticks(180, 100)
    assert [counts.count(number) for number in (3, 4, 5)] == [12, 12, 12]


def test_nothing_is_added_while_a_replica_starts() -> None:
    service = BaselineService(Wva(inputs()), ready=2)
    assert {service.tick(100).replicas for _ in range(60)} == {3}


def test_the_peak_of_a_minute_counts() -> None:
    service = BaselineService(Wva(inputs(least=1)), ready=4)
    service.tick(28.5)
    counts = service.ticks(54, 4)
    assert set(counts) == {5}
    assert service.ticks(10, 4)[-1] == 4


def test_held_requests_wake_from_zero_at_once() -> None:
    service = BaselineService(Wva(inputs()))
    assert [service.tick(at).replicas for at in (0, 2)] == [0, 1]


def test_zero_comes_after_ten_idle_minutes_where_it_is_allowed() -> None:
    service = BaselineService(Wva(inputs()), ready=1)
    service.tick(1)
    counts = service.ticks(800, 0)
    assert 600 < 5 * counts.index(0) <= 660
