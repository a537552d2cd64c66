"""What is believed of a space before anything is measured."""

from dataclasses import replace

import numpy as np
import pytest

from tests.searched_spaces import grid
from tuner.search.decide import decide
from tuner.search.decision import Explore
from tuner.search.problem import Budget, Observation, Problem, expected
from tuner.settings import SearchSettings

PRICES = (0.0, 2.0, 1.0, 3.0)


def kinds(returns: float, *, ordered: bool = False) -> Problem:
    """Return four kinds of machine, of which only the prices are known."""
    space = grid((0.0, 1.0, 2.0, 3.0), ordered=(ordered,), log_cost=lambda found: np.array(PRICES))
    return replace(space, returns=returns)


def test_what_has_only_a_price_is_expected_to_follow_it():
    assert np.diff(expected(kinds(-0.3))) == pytest.approx(-0.3 * np.diff(PRICES))


def test_nothing_is_expected_where_the_axes_say_how_specs_compare():
    assert not expected(kinds(-0.3, ordered=True)).any()


@pytest.mark.parametrize(("returns", "next_"), [(-0.3, 0), (0.7, 3)])
def test_the_price_decides_what_is_tried_next_where_little_else_is_known(returns: float, next_: int):
    decision = decide(
        kinds(returns), [Observation(2, log_objective=1.0)], (), Budget(4), settings=SearchSettings()
    )
    assert isinstance(decision, Explore)
    assert decision.indices == (next_,)
