import math
from dataclasses import replace

import numpy as np
import pytest

from tests.reference.known_surfaces import KnownService, grid, play
from tuner.search.decision_values import Explore
from tuner.search.next_decision import decide
from tuner.search.problem import Budget, Earlier, TrialObservation
from tuner.search.transfer import earlier_models, learn, log_merits
from tuner.settings import SearchSettings

SETTINGS = SearchSettings()
SERVICE = KnownService(bound=0.05)


@pytest.fixture(scope="module")
def similar() -> list[Earlier]:
    others = [KnownService(slope=0.6, bound=0.05), KnownService(slope=0.8, saturation=2.0, bound=0.05)]
    rng = np.random.default_rng(3)
    return [
        Earlier(
            f"e{i}",
            service.problem,
            tuple(service.measure(int(row), rng) for row in rng.permutation(60)[:20]),
        )
        for i, service in enumerate(others)
    ]


@pytest.fixture(scope="module")
def opposite(similar: list[Earlier]) -> list[Earlier]:
    return [
        replace(
            earlier,
            observations=tuple(
                replace(seen, log_objective=None if seen.log_objective is None else -seen.log_objective)
                for seen in earlier.observations
            ),
        )
        for earlier in similar
    ]


def test_similar_services_make_the_first_trials_good(similar):
    warm = play(SERVICE, 3, earlier=similar)
    first = [warm.observations[i] for i in range(3)]
    assert max(seen.log_objective for seen in first if seen.feasible) >= SERVICE.best + math.log(0.9)


def test_earlier_experiments_lose_their_weight_when_they_mislead(opposite):
    rng = np.random.default_rng(0)
    seen = [SERVICE.measure(row, rng) for row in (2, 17, 32, 47, 50, 57, 41, 26)]
    assert learn(SERVICE.problem, opposite, seen) is None


def test_earlier_experiments_keep_their_weight_when_they_rank_correctly(similar):
    rng = np.random.default_rng(0)
    seen = [SERVICE.measure(row, rng) for row in (2, 17, 32, 47, 50, 57, 41, 26)]
    prior = learn(SERVICE.problem, similar, seen)
    assert prior is not None
    assert sum(weight for _, weight in prior.weights) == pytest.approx(1)


def test_earlier_experiment_that_ranks_better_has_the_larger_weight(similar, opposite):
    rng = np.random.default_rng(0)
    seen = [SERVICE.measure(row, rng) for row in (2, 17, 32, 47, 50, 57, 41, 26)]
    prior = learn(SERVICE.problem, [similar[0], opposite[1]], seen)
    assert prior is not None
    (_, good), (_, bad) = prior.weights
    assert good > 5 * bad


def test_decision_has_the_weight_of_each_earlier_experiment(similar, opposite):
    rng = np.random.default_rng(0)
    seen = [SERVICE.measure(row, rng) for row in (2, 17, 32, 47, 50, 57, 41, 26)]
    short = replace(opposite[0], name="short", observations=opposite[0].observations[:3])

    def weights(*earlier: Earlier) -> dict[str, float]:
        return dict(decide(SERVICE.problem, seen, (), Budget(20), earlier, settings=SETTINGS).learned)

    weight_of = weights(*similar, short)
    assert weight_of.pop("short") == 0
    assert sum(weight_of.values()) == pytest.approx(1)
    assert weights(*opposite) == {experiment.name: 0.0 for experiment in opposite}
    at_random = decide(SERVICE.problem, seen, (), Budget(20), similar, settings=SETTINGS, algorithm="random")
    assert at_random.learned == (), "a search that does not learn reports no weights"
    assert weights() == {}


def test_search_ends_near_the_best_when_earlier_experiments_mislead(opposite):
    played = play(SERVICE, 16, earlier=opposite)
    assert SERVICE.log_objective(played.end.index) >= SERVICE.best + math.log(0.9)


KINDS = grid((0.0, 1.0, 2.0, 3.0), tuple(float(users) for users in range(8)), ordered=(False, True))
"""Four kinds of machine."""


def of_kinds(*kinds: float) -> np.ndarray:
    return np.array(kinds)[KINDS.ranks[:, 0]] + 0.2 * KINDS.ranks[:, 1]


def seen_of(values: np.ndarray, rows) -> tuple[TrialObservation, ...]:
    return tuple(TrialObservation(int(row), log_objective=float(values[row]), noise=0.01) for row in rows)


@pytest.fixture(scope="module")
def third_is_worst() -> list[Earlier]:
    return [
        Earlier(f"e{i}", KINDS, seen_of(of_kinds(1.0, 1.5 + i / 10, -3.0, 0.5), range(0, 32, 2)))
        for i in range(2)
    ]


def test_search_explores_specs_that_earlier_experiments_ranked_low(third_is_worst):
    here, tried = of_kinds(1.0, 1.5, 2.5, 0.5), []
    for _ in range(12):
        decision = decide(KINDS, seen_of(here, tried), (), Budget(30), third_is_worst, settings=SETTINGS)
        tried += list(decision.indices)
    assert int(np.argmax(here)) in tried


def test_every_second_trial_but_the_last_ignores_earlier_experiments(third_is_worst):
    seen = seen_of(of_kinds(1.0, 1.5, -3.0, 0.5), (7, 15))

    def next_of(trials: int, *earlier: Earlier) -> tuple[int, ...]:
        return decide(KINDS, seen, (), Budget(trials), earlier, settings=SETTINGS).indices

    assert next_of(4, *third_is_worst) == next_of(4)
    assert next_of(3, *third_is_worst) != next_of(3)


def test_earlier_model_includes_the_expected_scaling_of_both_spaces():
    """The measured part of the axis is flat; the prediction steps where the expected scaling does."""
    space = grid(tuple(float(at) for at in range(12)), log_bounds=(0.0,))
    step = np.where(space.coordinates[:, 0] >= 8, 2.0, 0.0)
    space = replace(space, expected=step, expected_margins=-step[:, None])
    seen = tuple(TrialObservation(row, log_objective=0.0, margins=(0.0,)) for row in range(6))
    (lesson,) = earlier_models(space, [Earlier("e", space, seen)])
    assert np.diff(lesson.objective) == pytest.approx(np.diff(step), abs=0.01)
    assert np.diff(lesson.log_values[0]) == pytest.approx(-np.diff(step), abs=0.01)


def test_search_continues_when_only_earlier_experiments_rank_the_unmeasured_specs_low(
    third_is_worst,
):
    """All kinds but the third were measured, and rank as in the earlier experiments; the third is unknown."""
    rows = (0, 3, 5, 7, 8, 11, 12, 13, 15, 24, 27, 31)
    seen = seen_of(of_kinds(1.0, 1.5, 2.5, 0.5), rows)
    assert learn(KINDS, third_is_worst, seen) is not None
    decision = decide(KINDS, seen, (), Budget(30), third_is_worst, settings=SETTINGS)
    assert isinstance(decision, Explore)
    assert decision.expected_regret > SETTINGS.regret


def test_search_leaves_specs_near_failed_ones_despite_earlier_experiments():
    """The largest batches were by far the best in the earlier experiment; here none of them boots."""
    space = grid(tuple(float(batch) for batch in range(9)), (0.0, 1.0, 2.0, 3.0, 4.0))
    values = 0.5 * space.ranks[:, 0] + 0.1 * space.ranks[:, 1]
    old = Earlier("old", space, seen_of(values, range(0, 45, 3)))
    tried: list[TrialObservation] = []
    while not any(observation.boots for observation in tried):
        (row,) = decide(space, tried, (), Budget(30), [old], settings=SETTINGS).indices
        boots = space.ranks[row, 0] < 4
        tried.append(
            TrialObservation(row, log_objective=1.0) if boots else TrialObservation(row, cause="crash")
        )
    assert len(tried) <= 5


def test_earlier_experiment_of_few_trials_has_no_model(similar):
    short = [replace(experiment, observations=experiment.observations[:3]) for experiment in similar]
    assert earlier_models(SERVICE.problem, short) == ()
    assert learn(SERVICE.problem, short, []) is None


def test_margins_shift_by_the_ratio_of_the_bounds(similar):
    loose, tight = (learn(KnownService(bound=bound).problem, similar, []) for bound in (0.2, 0.02))
    assert loose is not None
    assert tight is not None
    assert np.allclose(tight.margins[0] - loose.margins[0], math.log(10))
    assert np.all(log_merits(tight) <= log_merits(loose) + 1e-12)


def test_constraint_is_learned_only_from_experiments_that_have_it(similar):
    """Our constraints are a new one and latency; the first experiment has latency, the second none."""
    ours = replace(SERVICE.problem, log_bounds=(math.log(0.01), math.log(0.05)))
    latency = replace(similar[0], constraints=(1,))
    free = replace(
        similar[1],
        problem=replace(similar[1].problem, log_bounds=()),
        observations=tuple(replace(seen, margins=()) for seen in similar[1].observations),
    )
    alone = learn(SERVICE.problem, similar[:1], [])
    prior = learn(ours, [latency, free], [])
    assert alone is not None
    assert prior is not None
    assert np.all(prior.margins[0] == 0)
    assert np.allclose(prior.margins[1], alone.margins[0])


def test_first_spec_is_one_that_booted_in_earlier_experiments(similar):
    first = play(SERVICE, 1, earlier=similar)
    assert isinstance(first.decisions[0], Explore)
    assert SERVICE.boots(first.decisions[0].indices[0])


def test_earlier_experiment_whose_specs_never_booted_is_not_learned_from():
    never = Earlier("e", SERVICE.problem, tuple(TrialObservation(row, cause="crash") for row in range(20)))
    assert learn(SERVICE.problem, [never], []) is None


def test_earlier_experiment_without_prices_predicts_the_same_at_any_prices():
    def space(prices: tuple[float, ...]):
        return grid(
            (0.0, 1.0, 2.0, 3.0),
            (0.0, 1.0, 2.0),
            ordered=(False, True),
            log_cost=lambda coordinates: np.array([prices[int(kind)] for kind in coordinates[:, 0]]),
        )

    free = space((0.0, 0.0, 0.0, 0.0))
    free = replace(free, expected=free.log_cost)
    seen = tuple(TrialObservation(row, log_objective=float(row % 5)) for row in range(0, 12, 2))
    earlier = [Earlier("e", free, seen)]
    ours = space((3.0, 0.0, 1.0, 2.0))
    (same,), (priced,) = (
        earlier_models(free, earlier),
        earlier_models(replace(ours, expected=-ours.log_cost), earlier),
    )
    assert np.allclose(same.objective, priced.objective)
