"""How sure a measurement is, alone and with others."""

import math

import pytest

from serving.resources.experiment import Objective
from serving.resources.trial import Estimate, Window
from tuner import intervals
from tuner.objective import objective_value


def estimate(value: float, low: float, high: float) -> Estimate:
    return Estimate(value=value, low=low, high=high)


def test_measurements_that_exclude_each_other_are_pooled_to_an_interval_with_both():
    found = intervals.pooled([estimate(100, 99, 101), estimate(120, 119, 121)])
    assert found.value == pytest.approx(math.sqrt(100 * 120))
    assert found.low < 100
    assert found.high > 120


def test_the_interval_grows_by_birges_ratio_where_equally_sure_measurements_are_apart():
    width, values = 0.05, (0.0, 0.1, 0.25)
    logs = [Estimate(value=math.exp(v), low=math.exp(v - width), high=math.exp(v + width)) for v in values]
    mean = sum(values) / 3
    q = sum(((v - mean) / (width / intervals.Z95)) ** 2 for v in values)
    alone = width / math.sqrt(3)
    assert math.log(intervals.pooled(logs).high) - mean == pytest.approx(alone * math.sqrt(q / 2))


def test_measurements_that_agree_are_surer_together():
    found = intervals.pooled([estimate(100, 90, 111), estimate(101, 91, 112)])
    assert math.log(found.high / found.low) == pytest.approx(math.log(111 / 90) / math.sqrt(2), rel=0.01)


def test_what_differs_from_one_measurement_to_the_next_widens_one_and_what_is_exact_stays_so():
    once = intervals.pooled([estimate(100, 99, 101)], 0.1)
    assert once.value == pytest.approx(100)
    assert math.log(once.high / once.value) == pytest.approx(math.hypot(intervals.Z95 * 0.1, 0.01), rel=1e-3)
    twice = intervals.pooled([estimate(100, 99, 101)] * 2, 0.1)
    assert math.log(once.high / once.low) / math.log(twice.high / twice.low) == pytest.approx(math.sqrt(2))
    exact = intervals.pooled([estimate(0.045, 0.045, 0.045)], 0.1)
    assert exact.low == exact.high == pytest.approx(0.045)


def test_an_upper_end_that_nothing_bounds_does_not_widen_what_several_measurements_say():
    """A p99 of few requests, whose upper end is the timeout."""
    found = intervals.pooled([estimate(0.066, 0.060, 30), estimate(0.073, 0.066, 30)])
    assert found.value == pytest.approx(0.0694, abs=1e-3)
    assert 0.055 < found.low < 0.065
    assert 0.075 < found.high < 0.085


def test_shares_of_nothing_are_pooled_as_they_are_and_apart_widens_them_too():
    found = intervals.pooled([estimate(0, 0, 0.001), estimate(0.1, 0.09, 0.11)])
    assert found.value == pytest.approx(0.05)
    assert found.high > 0.1
    assert intervals.pooled([estimate(0, 0, 0.001)] * 2).high < 0.001


def test_a_mean_without_a_lower_end_is_as_unsure_as_its_upper_end_says():
    found = estimate(10, 0, 40)
    assert intervals.half_width(found) == pytest.approx(math.log(4))
    assert intervals.log_deviation(found) == pytest.approx(math.log(4) / intervals.Z95)


@pytest.mark.parametrize(
    "found", [estimate(30, 0, 30), estimate(10, 0, math.inf), estimate(10, 1e-9, math.inf)]
)
def test_what_nothing_bounds_is_as_unsure_as_can_be(found: Estimate):
    assert intervals.half_width(found) == intervals.WIDEST


@pytest.mark.parametrize("found", [estimate(5, 5, 5), estimate(0, 0, 1)])
def test_what_has_no_width_that_could_be_told_has_none(found: Estimate):
    assert intervals.half_width(found) == 0.0


def test_a_rate_costs_what_it_costs_where_the_throughput_has_no_lower_end():
    asked = Objective.model_validate({"type": "minimize", "objectiveMetricName": "costAtRate", "rate": "100"})
    seen = Window.model_validate(
        {
            "level": 1,
            "throughput": {"value": 10, "low": 0, "high": 20},
            "errorRate": {"value": 0, "low": 0, "high": 0},
        }
    )
    found = objective_value(asked, seen, 0.5, 1)
    assert found is not None
    assert (found.value, found.low) == (5.0, 2.5)
    assert 50 < found.high < math.inf


def test_what_costs_nothing_has_no_cost_to_compare():
    asked = Objective.model_validate({"type": "minimize", "objectiveMetricName": "cost"})
    seen = Window.model_validate(
        {
            "level": 1,
            "throughput": {"value": 10, "low": 9, "high": 11},
            "errorRate": {"value": 0, "low": 0, "high": 0},
        }
    )
    assert objective_value(asked, seen, 0.0, 1) is None
