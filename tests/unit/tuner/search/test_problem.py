"""What is believed of a space before anything is measured."""

from dataclasses import replace

import numpy as np
import pytest

from tests.reference.known_surfaces import grid
from tuner.search.decide import decide
from tuner.search.decision import Explore
from tuner.search.posterior import predict
from tuner.search.problem import Budget, Floats, Observation, Problem
from tuner.settings import SearchSettings

EXPECTED = np.array([0.0, 2.0, 1.0, 3.0])


def kinds(expected: Floats | None, *, constraints: int = 0) -> Problem:
    """Return four kinds of machine, of which only what is expected of them is known."""
    space = grid((0.0, 1.0, 2.0, 3.0), ordered=(False,), log_bounds=(0.0,) * constraints)
    return replace(space, expected=expected)


@pytest.mark.parametrize(("sign", "next_"), [(-1.0, 0), (1.0, 3)])
def test_what_is_expected_decides_what_is_tried_next_where_little_else_is_known(sign: float, next_: int):
    decision = decide(
        kinds(sign * EXPECTED), [Observation(2, log_objective=1.0)], (), Budget(4), settings=SearchSettings()
    )
    assert isinstance(decision, Explore)
    assert decision.indices == (next_,)


def test_what_was_measured_is_believed_whatever_was_expected():
    measured = [Observation(row, log_objective=-value) for row, value in enumerate(EXPECTED)]
    found = predict(kinds(EXPECTED), measured).objective.mean
    assert found == pytest.approx(-EXPECTED, abs=0.2)


def test_a_margin_is_expected_to_lie_as_far_from_one_measured_as_was_said():
    expected = np.column_stack([EXPECTED, -EXPECTED])
    space = replace(kinds(None, constraints=2), expected_margins=expected)
    found = predict(space, [Observation(0, log_objective=0.0, margins=(-1.0, 1.0))])
    assert found.margins[0].mean == pytest.approx(-1.0 + EXPECTED)
    assert found.margins[1].mean == pytest.approx(1.0 - EXPECTED)
