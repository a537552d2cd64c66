from autoscaler.policy.config import Pace
from autoscaler.policy.limits.pace import PaceLimit


def test_count_rises_by_the_larger_limit_within_a_minute():
    pace = PaceLimit(Pace(replicas_per_minute=2, percent_per_minute=100), Pace())
    assert pace.limited(0.0, 4, 20) == 8
    assert pace.limited(30.0, 8, 20) == 8
    assert pace.limited(61.0, 8, 20) == 16


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
