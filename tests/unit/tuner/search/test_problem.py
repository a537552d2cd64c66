"""The expected scaling of a space as the prior of its model."""

from dataclasses import replace

import numpy as np
import pytest

from tests.reference.known_surfaces import grid
from tuner.search.decision_values import Explore
from tuner.search.next_decision import decide
from tuner.search.posterior import predict
from tuner.search.problem import Budget, Floats, Problem, TrialObservation
from tuner.settings import SearchSettings

EXPECTED = np.array([0.0, 2.0, 1.0, 3.0])


def kinds(expected: Floats | None, *, constraints: int = 0) -> Problem:
    """Return four kinds of machine, which differ only in their expected values."""
    space = grid((0.0, 1.0, 2.0, 3.0), ordered=(False,), log_bounds=(0.0,) * constraints)
    return replace(space, expected=expected)


@pytest.mark.parametrize(("sign", "next_"), [(-1.0, 0), (1.0, 3)])
def test_expected_scaling_ranks_the_specs_while_few_are_measured(sign: float, next_: int):
    decision = decide(
        kinds(sign * EXPECTED),
        [TrialObservation(2, log_objective=1.0)],
        (),
        Budget(4),
        settings=SearchSettings(),
    )
    assert isinstance(decision, Explore)
    assert decision.indices == (next_,)


def test_measurements_outweigh_the_expected_scaling():
    measured = [TrialObservation(row, log_objective=-value) for row, value in enumerate(EXPECTED)]
    mean = predict(kinds(EXPECTED), measured).objective.mean
    assert mean == pytest.approx(-EXPECTED, abs=0.2)


def test_margins_of_unmeasured_specs_differ_by_the_expected_margins():
    expected = np.column_stack([EXPECTED, -EXPECTED])
    space = replace(kinds(None, constraints=2), expected_margins=expected)
    prediction = predict(space, [TrialObservation(0, log_objective=0.0, margins=(-1.0, 1.0))])
    assert prediction.margins[0].mean == pytest.approx(-1.0 + EXPECTED)
    assert prediction.margins[1].mean == pytest.approx(1.0 - EXPECTED)


def test_spec_without_an_objective_does_not_change_the_expected_objective_of_others():
    space = grid(range(5), log_bounds=(0.0,))
    seen = [TrialObservation(row, log_objective=float(row), margins=(-1.0,)) for row in (0, 1, 3)]
    breaks = TrialObservation(4, log_objective=None, margins=(1.0,))
    without, with_it = predict(space, seen), predict(space, [*seen, breaks])
    assert np.array_equal(with_it.objective.mean, without.objective.mean)
    assert with_it.repeatability == without.repeatability
    assert with_it.p_meets[4] < without.p_meets[4]


def test_model_without_any_objective_expects_the_scaling():
    space = replace(kinds(EXPECTED), log_bounds=(0.0,))
    mean = predict(space, [TrialObservation(2, log_objective=None, margins=(1.0,))]).objective.mean
    assert mean - mean[2] == pytest.approx(EXPECTED - EXPECTED[2])
    decision = decide(space, [TrialObservation(2, margins=(1.0,))], (), Budget(4), settings=SearchSettings())
    assert isinstance(decision, Explore)
