from dataclasses import replace

import numpy as np
import pytest

from tests.reference.known_surfaces import grid
from tuner.search import choice
from tuner.search.choice import MeanMargins, nearest, ranked
from tuner.search.decide import decide
from tuner.search.decision import Impossible
from tuner.search.posterior import predict
from tuner.search.problem import Budget, Observation
from tuner.settings import SearchSettings

SPACE = grid(range(4), range(3), log_bounds=(0.0,))
Z99 = 2.33
ENOUGH = SearchSettings(least_trials=1, regret=1.0)
"""Ends a search at once, but for its confirmations."""


def seen(row: int, objective: float, margin: float, **more) -> Observation:
    return Observation(
        row, log_objective=objective, margins=(margin,), **{"noise": 0.01, "margin_noise": 0.01, **more}
    )


def best(observations: list[Observation], quantile: float = Z99) -> list[int]:
    return [
        candidate.index for candidate in ranked(observations, predict(SPACE, observations), quantile=quantile)
    ]


def test_the_best_comes_first_if_its_margin_is_wide():
    assert best([seen(0, 0.0, -1.0), seen(5, 1.0, -1.0), seen(11, 0.5, -1.0)]) == [5, 11, 0]


def test_a_narrow_margin_comes_after_every_wide_one():
    order = best([seen(0, 0.0, -1.0), seen(5, 1.0, -0.01, margin_noise=0.1), seen(11, 0.5, -1.0)])
    assert order == [11, 0, 5]


def test_noise_decides_how_wide_a_margin_must_be():
    narrow = [seen(0, 0.0, -1.0), seen(11, 1.0, -0.2, margin_noise=0.3)]
    assert best(narrow) == [0, 11]
    assert best([narrow[0], seen(11, 1.0, -0.2, margin_noise=0.001)]) == [11, 0]


def test_margin_is_wide_enough_for_another_single_measurement():
    scattered = [seen(0, 0.0, -1.0), seen(11, 1.0, -0.2, margin_noise=0.001, scatter=0.3)]
    assert best(scattered) == [0, 11]


def test_spec_that_broke_its_bound_on_average_or_failed_once_is_no_candidate():
    observations = [
        seen(0, 0.0, -1.0),
        seen(5, 1.0, -0.1),
        seen(5, 1.0, 0.2, confirms=True),
        seen(11, 2.0, -1.0),
        Observation(11, cause="memory", confirms=True),
    ]
    assert best(observations) == [0]


def test_deviation_falls_when_a_spec_is_measured_again():
    once = [seen(0, 0.0, -1.0), seen(5, 1.0, -1.0, noise=0.2), seen(11, 0.5, -1.0)]
    twice = [*once, seen(5, 1.0, -1.0, noise=0.2, confirms=True)]
    first, second = (
        ranked(observations, predict(SPACE, observations), quantile=Z99)[0] for observations in (once, twice)
    )
    assert (first.confirmations, second.confirmations) == (0, 1)
    assert second.deviation < first.deviation


def test_spec_whose_trials_all_stopped_early_ranks_but_is_not_the_best():
    observations = [seen(0, 0.0, -1.0), seen(5, 1.0, -1.0, censored=True), seen(11, 0.5, -1.0)]
    candidates = ranked(observations, predict(SPACE, observations), quantile=Z99)
    assert candidates[0].index == 5
    assert choice.best(candidates).index == 11
    assert decide(SPACE, observations, (), Budget(10, 2), settings=ENOUGH).indices == (5, 11)
    again = [*observations, seen(5, 1.0, -1.0, confirms=True)]
    assert choice.best(ranked(again, predict(SPACE, again), quantile=Z99)).index == 5
    assert choice.best(()) is None


def test_nearest_spec_ran_every_time():
    observations = [Observation(0, cause="boot"), seen(1, 0.0, 0.7), seen(2, 0.0, 0.3)]
    assert nearest(observations) == MeanMargins(2, (0.3,))
    crashed = Observation(2, cause="crash", confirms=True)
    assert nearest([*observations, crashed]) == MeanMargins(1, (0.7,))
    assert nearest(observations[:1]) is None
    assert nearest([observations[2], crashed]) is None


def test_nearest_spec_is_by_mean_margins():
    spec = nearest([seen(1, 0.0, -0.1), seen(1, 0.0, 0.5), seen(2, 0.0, 0.1)])
    assert spec == MeanMargins(2, (0.1,))


@pytest.mark.parametrize("margins", [(), (-1.0,)])
def test_search_names_no_constraint_when_the_only_spec_that_ran_crashes_later(margins):
    space = replace(SPACE, log_bounds=tuple(0.0 for _ in margins))
    observations = [
        *(Observation(row, cause="crash") for row in range(8)),
        Observation(8, log_objective=0.0, noise=0.01, margins=margins),
        Observation(8, cause="crash", confirms=True),
    ]
    end = decide(space, observations, (), Budget(10), settings=SearchSettings())
    assert isinstance(end, Impossible)
    assert (end.constraint, end.nearest, end.margins) == (None, None, ())


def test_every_spec_that_ran_is_a_candidate_without_constraints():
    space = grid(range(4), range(3))
    observations = [Observation(row, log_objective=float(row), noise=0.01) for row in (0, 4, 9)]
    candidates = ranked(observations, predict(space, observations), quantile=Z99)
    assert [candidate.index for candidate in candidates] == [9, 4, 0]
    assert np.all([candidate.safety == 0 for candidate in candidates])
