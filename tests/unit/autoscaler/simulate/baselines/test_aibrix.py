import pytest

from autoscaler.simulate.baselines.aibrix import Apa, recommended
from tests.unit.autoscaler.simulate.baselines.observations import BaselineService, inputs


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(1.1, 10), (1.11, 12), (1.5, 15), (3.0, 20), (0.9, 10), (0.89, 9), (0.6, 6), (0.1, 5), (0.0, 5)],
)
def test_a_ratio_outside_its_tolerance_scales_by_twice_at_most(ratio: float, expected: int) -> None:
    assert recommended(10, ratio) == expected


def test_the_metric_is_a_mean_of_three_minutes_per_ready_replica() -> None:
    service = BaselineService(Apa(inputs()), ready=10)
    service.ticks(180, 70)
    counts = [service.tick(140).replicas for _ in range(2)]
    assert counts == [
        10,
        12,
    ]  # (170 * 7 + 10 * 14) / 180 is within the tolerance, (160 * 7 + 20 * 14) / 180 is not


def test_replicas_that_start_are_multiplied_as_well() -> None:
    service = BaselineService(Apa(inputs()), ready=4)
    assert [service.tick(280).replicas for _ in range(4)] == [8, 16, 32, 64]


def test_the_way_down_takes_the_highest_of_five_minutes() -> None:
    service = BaselineService(Apa(inputs()), ready=10)
    service.ticks(180, 70)
    counts = service.ticks(400, 0)
    # The mean leaves the tolerance after 20 s; until then ten replicas are recommended.
    assert [10 * (counts.index(number) + 1) for number in (10, 9)] == [10, 310]


def test_there_is_no_metric_without_a_ready_replica() -> None:
    service = BaselineService(Apa(inputs()))
    assert [service.tick(5).replicas for _ in range(3)] == [1, 1, 1]
