"""The presentation of the objective in money per work."""

import math

from serving.resources.tuning.experiment import Objective
from serving.resources.tuning.trial import Estimate
from tuner import notation
from tuner.report.text import measure

COST = measure.of_objective(Objective())


def test_work_per_money_is_shown_as_money_per_work_with_inverted_ends():
    assert COST.estimate(Estimate(value=1e6, low=5e5, high=2e6)) == Estimate(value=1, low=0.5, high=2)


def test_a_cost_without_an_upper_end_is_written_as_or_more():
    estimate = COST.estimate(Estimate(value=1e6, low=0, high=2e6))
    assert estimate == Estimate(value=1, low=0.5, high=math.inf)
    assert notation.interval(estimate, COST.write) == "1 (0.5 or more)"


def test_no_work_has_no_cost():
    assert COST.estimate(Estimate(value=0, low=0, high=2e6)) is None
