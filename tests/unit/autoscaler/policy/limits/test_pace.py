import pytest

from autoscaler.policy.config import Pace
from autoscaler.policy.limits.pace import PaceLimit


def test_count_rises_by_the_larger_limit_within_a_minute():
    pace = PaceLimit(Pace(replicas_per_minute=2, percent_per_minute=100), Pace())
    assert pace.limited(0.0, 4, 20) == 8
    assert pace.limited(30.0, 8, 20) == 8
    assert pace.limited(61.0, 8, 20) == 16


def test_a_woken_count_rises_by_a_percentage_of_one_replica_when_the_minute_began_at_zero():
    pace = PaceLimit(Pace(percent_per_minute=100), Pace())
    assert pace.limited(0.0, 0, 1) == 1
    assert pace.limited(5.0, 1, 4) == 2
    assert pace.limited(66.0, 2, 4) == 4


@pytest.mark.parametrize(
    ("up", "most"),
    [(Pace(), 10), (Pace(1), 1), (Pace(3), 3), (Pace(3, 100), 3), (Pace(1, 100), 2), (Pace(None, 1), 2)],
)
def test_a_count_rises_from_zero_within_its_limits(up: Pace, most: int):
    assert PaceLimit(up, Pace()).limited(0.0, 0, 10) == most


def test_a_count_falls_at_once_when_its_fall_has_no_limit():
    assert PaceLimit(Pace(replicas_per_minute=1), Pace()).limited(0.0, 9, 2) == 2


def test_a_count_falls_by_its_limit_when_there_is_one():
    pace = PaceLimit(Pace(), Pace(replicas_per_minute=1))
    assert pace.limited(0.0, 9, 2) == 8
    assert pace.limited(5.0, 8, 2) == 8


def test_limits_restart_when_the_clock_is_set_back():
    pace = PaceLimit(Pace(replicas_per_minute=1), Pace())
    assert pace.limited(4000.0, 3, 9) == 4
    assert pace.limited(400.0, 4, 9) == 5
