import pytest

from autoscaler.simulate.baselines.hpa import Behaviour, Hpa, of_total, of_utilisation
from tests.unit.autoscaler.simulate.baselines.observations import BaselineService, inputs


@pytest.mark.parametrize(
    ("ratio", "ready", "expected"),
    [
        (2.0, 3, 6),
        (1.5, 3, 5),
        (0.5, 10, 5),
        (0.41, 10, 5),
        (1.09, 10, 10),
        (0.91, 10, 10),
        (1.11, 10, 12),
        (0.89, 10, 9),
    ],
)
def test_replicas_follow_the_ratio_outside_its_tolerance(ratio: float, ready: int, expected: int) -> None:
    assert of_utilisation(ratio, ready, ready, 0) == expected


def test_replicas_that_are_not_ready_count_as_idle_on_the_way_up() -> None:
    assert of_utilisation(1.4, 5, 4, 1) == 6  # 1.4 * 4 / 5 = 1.12 of 5
    assert of_utilisation(1.3, 5, 4, 1) == 5  # 1.04 is within the tolerance
    assert of_utilisation(1.4, 8, 4, 4) == 8  # 0.7 would turn the direction


def test_replicas_that_are_not_ready_do_not_count_on_the_way_down() -> None:
    assert of_utilisation(0.5, 8, 4, 4) == 2


@pytest.mark.parametrize(
    ("total", "current", "expected"), [(70, 10, 10), (76, 10, 10), (78, 10, 12), (21, 10, 3), (700, 1, 100)]
)
def test_an_external_metric_is_divided_by_its_target(total: float, current: int, expected: int) -> None:
    assert of_total(total, 7, current) == expected


@pytest.mark.parametrize(("current", "most"), [(1, 5), (3, 7), (4, 8), (10, 20)])
def test_scaling_up_adds_four_or_as_many_as_there_are(current: int, most: int) -> None:
    assert Behaviour().applied(0, current, 1000) == most


def test_scaling_down_waits_for_the_highest_of_five_minutes() -> None:
    behaviour = Behaviour()
    assert behaviour.applied(0, 10, 10) == 10
    assert behaviour.applied(15, 10, 4) == 10
    assert behaviour.applied(30, 10, 6) == 10
    assert behaviour.applied(299, 10, 3) == 10
    assert behaviour.applied(300, 10, 3) == 6
    assert behaviour.applied(330, 6, 3) == 3


def test_the_number_at_the_start_counts_as_a_recommendation() -> None:
    behaviour = Behaviour()
    assert behaviour.applied(0, 10, 2) == 10
    assert behaviour.applied(299, 10, 2) == 10
    assert behaviour.applied(300, 10, 2) == 2


def test_utilisation_is_work_over_capacity_where_it_is_not_measured() -> None:
    service = BaselineService(Hpa(inputs()), ready=10)
    assert service.tick(10, rate=84).replicas == 12  # 0.84 / 0.7 of 10


def test_a_backlog_is_full_utilisation_however_long_it_is() -> None:
    service = BaselineService(Hpa(inputs()), ready=10)
    assert service.tick(5000, rate=1).replicas == 15  # 1 / 0.7 of 10


def test_desired_count_does_not_wind_up_while_replicas_start() -> None:
    service = BaselineService(Hpa(inputs()), ready=10)
    assert [service.tick(5000, usage=1).replicas for _ in range(20)] == [15] * 20


def test_measured_utilisation_is_used() -> None:
    service = BaselineService(Hpa(inputs()), ready=10)
    assert service.tick(0, rate=0, usage=0.9).replicas == 13
