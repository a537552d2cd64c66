"""How the objective is turned over for people."""

import math

from serving.resources.experiment import Objective
from serving.resources.trial import Estimate
from tuner import notation
from tuner.report.text import measure

COST = measure.of_objective(Objective())


def test_work_per_money_is_shown_as_money_per_work_with_its_ends_turned_over():
    assert COST.estimate(Estimate(value=1e6, low=5e5, high=2e6)) == Estimate(value=1, low=0.5, high=2)


def test_a_cost_that_nothing_bounds_has_an_open_end():
    found = COST.estimate(Estimate(value=1e6, low=0, high=2e6))
    assert found == Estimate(value=1, low=0.5, high=math.inf)
    assert notation.interval(found, COST.write) == "1 (0.5 or more)"


def test_what_nothing_was_done_for_has_no_cost():
    assert COST.estimate(Estimate(value=0, low=0, high=2e6)) is None
