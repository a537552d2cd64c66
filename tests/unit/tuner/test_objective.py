"""The uncertainty of a measurement, alone and pooled with others."""

import math

import pytest

from serving.resources.tuning.experiment import Objective
from serving.resources.tuning.trial import Estimate, Window
from tuner import intervals
from tuner.objective import objective_value


def estimate(value: float, low: float, high: float) -> Estimate:
    return Estimate(value=value, low=low, high=high)


def window(throughput: Estimate, errors: Estimate) -> Window:
    return Window(level=1, throughput=throughput, error_rate=errors)


def test_pooled_interval_of_disjoint_measurements_includes_both():
    pooled = intervals.pooled([estimate(100, 99, 101), estimate(120, 119, 121)])
    assert pooled.value == pytest.approx(math.sqrt(100 * 120))
    assert pooled.low < 100
    assert pooled.high > 120


def test_pooled_interval_grows_by_birges_ratio_when_equally_precise_measurements_differ():
    width, values = 0.05, (0.0, 0.1, 0.25)
    logs = [Estimate(value=math.exp(v), low=math.exp(v - width), high=math.exp(v + width)) for v in values]
    mean = sum(values) / 3
    q = sum(((v - mean) / (width / intervals.Z95)) ** 2 for v in values)
    alone = width / math.sqrt(3)
    assert math.log(intervals.pooled(logs).high) - mean == pytest.approx(alone * math.sqrt(q / 2))


def test_pooled_interval_is_narrower_when_measurements_agree():
    pooled = intervals.pooled([estimate(100, 90, 111), estimate(101, 91, 112)])
    assert math.log(pooled.high / pooled.low) == pytest.approx(math.log(111 / 90) / math.sqrt(2), rel=0.01)


def test_repeatability_widens_one_measurement_but_not_an_exact_one():
    once = intervals.pooled([estimate(100, 99, 101)], 0.1)
    assert once.value == pytest.approx(100)
    assert math.log(once.high / once.value) == pytest.approx(math.hypot(intervals.Z95 * 0.1, 0.01), rel=1e-3)
    twice = intervals.pooled([estimate(100, 99, 101)] * 2, 0.1)
    assert math.log(once.high / once.low) / math.log(twice.high / twice.low) == pytest.approx(math.sqrt(2))
    exact = intervals.pooled([estimate(0.045, 0.045, 0.045)], 0.1)
    assert exact.low == exact.high == pytest.approx(0.045)


def test_unbounded_upper_ends_do_not_widen_the_pooled_interval():
    """A p99 of few requests has the timeout as its upper end."""
    pooled = intervals.pooled([estimate(0.066, 0.060, 30), estimate(0.073, 0.066, 30)])
    assert pooled.value == pytest.approx(0.0694, abs=1e-3)
    assert 0.055 < pooled.low < 0.065
    assert 0.075 < pooled.high < 0.085


def test_zero_shares_are_pooled_arithmetically_and_differences_widen_the_interval():
    pooled = intervals.pooled([estimate(0, 0, 0.001), estimate(0.1, 0.09, 0.11)])
    assert pooled.value == pytest.approx(0.05)
    assert pooled.high > 0.1
    assert intervals.pooled([estimate(0, 0, 0.001)] * 2).high < 0.001


def test_deviation_is_that_of_the_upper_end_without_a_lower_end():
    measurement = estimate(10, 0, 40)
    assert intervals.half_width(measurement) == pytest.approx(math.log(4))
    assert intervals.log_deviation(measurement) == pytest.approx(math.log(4) / intervals.Z95)


@pytest.mark.parametrize(
    "measurement", [estimate(30, 0, 30), estimate(10, 0, math.inf), estimate(10, 1e-9, math.inf)]
)
def test_half_width_of_an_unbounded_value_is_the_widest(measurement: Estimate):
    assert intervals.half_width(measurement) == intervals.WIDEST


@pytest.mark.parametrize("measurement", [estimate(5, 5, 5), estimate(0, 0, 1)])
def test_half_width_is_zero_without_a_known_width(measurement: Estimate):
    assert intervals.half_width(measurement) == 0.0


def test_cost_at_rate_is_known_without_a_lower_end_of_the_throughput():
    objective = Objective.model_validate(
        {"type": "minimize", "objectiveMetricName": "costAtRate", "rate": "100"}
    )
    seen = window(throughput=estimate(10, 0, 20), errors=estimate(0, 0, 0))
    cost = objective_value(objective, seen, 0.5, 1)
    assert cost is not None
    assert (cost.value, cost.low) == (5.0, 2.5)
    assert 50 < cost.high < math.inf


def test_cost_objective_is_none_without_a_cost():
    objective = Objective.model_validate({"type": "minimize", "objectiveMetricName": "cost"})
    seen = window(throughput=estimate(10, 9, 11), errors=estimate(0, 0, 0))
    assert objective_value(objective, seen, 0.0, 1) is None


def test_cost_objective_is_none_without_answers():
    objective = Objective.model_validate({"type": "minimize", "objectiveMetricName": "cost"})
    silent = window(throughput=estimate(0, 0, 0), errors=estimate(1, 0.9, 1))
    assert objective_value(objective, silent, 0.5, 1) is None
