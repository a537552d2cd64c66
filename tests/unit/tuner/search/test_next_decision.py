import math
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.reference.known_surfaces import KnownService, grid, play
from tuner.search.decision_values import Confirm, Explore, Impossible, Recommend, Wait
from tuner.search.next_decision import decide
from tuner.search.problem import Budget, TrialObservation
from tuner.settings import SearchSettings

NEVER_ENOUGH = replace(SearchSettings(), regret=0.0, hopeless=0.0)


def explored(played) -> list[int]:
    return [seen.index for seen in played.observations if not seen.confirms]


@pytest.mark.parametrize("bound", [None, 0.02, 0.05])
def test_a_search_finds_nearly_the_best_spec_in_a_quarter_of_the_space(bound):
    service = KnownService(bound=bound, noise=0.01)
    played = play(service, 15)
    assert isinstance(played.end, Recommend)
    assert service.feasible(played.end.index)
    assert service.log_objective(played.end.index) >= service.best + math.log(0.97)


def test_no_spec_is_explored_twice_or_beyond_the_budget():
    played = play(KnownService(), 12)
    assert len(explored(played)) == len(set(explored(played)))
    assert len(played.observations) == 12


def test_decision_over_a_thousand_specs_takes_under_a_second_of_a_core():
    space = grid(range(10), range(10), range(10), log_bounds=(0.0,))
    rng = np.random.default_rng(0)
    seen = [
        TrialObservation(
            int(row), log_objective=float(space.coordinates[row].sum()), noise=0.1, margins=(-0.5,)
        )
        for row in rng.choice(space.size, 30, replace=False)
    ]
    began = time.process_time()
    assert isinstance(decide(space, seen, (), Budget(60), settings=NEVER_ENOUGH), Explore)
    assert time.process_time() - began < 1.0


def test_the_same_observations_give_the_same_decision():
    assert play(KnownService(noise=0.02), 9).decisions == play(KnownService(noise=0.02), 9).decisions


def test_specs_that_are_measured_together_differ():
    played = play(KnownService(), 12, parallelism=4)
    assert all(len(set(d.indices)) == len(d.indices) for d in played.decisions if isinstance(d, Explore))
    assert len(explored(played)) == len(set(explored(played)))
    assert any(isinstance(decision, Explore) and len(decision.indices) > 1 for decision in played.decisions)


def test_pending_specs_are_not_chosen_and_occupy_slots():
    problem = KnownService().problem
    first = decide(problem, [], [], Budget(10, 3), settings=NEVER_ENOUGH)
    assert isinstance(first, Explore)
    assert len(first.indices) == 3
    assert isinstance(decide(problem, [], first.indices, Budget(10, 3), settings=NEVER_ENOUGH), Wait)
    more = decide(problem, [], first.indices[:2], Budget(10, 3), settings=NEVER_ENOUGH)
    assert isinstance(more, Explore)
    assert not set(more.indices) & set(first.indices[:2])


def test_less_memory_is_not_tried_after_running_out_of_memory():
    played = play(KnownService(), 18)
    ranks = KnownService().problem.ranks
    failed: list[np.ndarray] = []
    for seen in played.observations:
        rank = ranks[seen.index]
        assert not any(rank[1] == f[1] and rank[0] <= f[0] and rank[2] <= f[2] for f in failed)
        if seen.cause == "memory":
            failed.append(rank)


def test_winner_and_runner_up_are_confirmed_before_a_recommendation():
    played = play(KnownService(noise=0.03), 14)
    assert isinstance(played.end, Recommend)
    confirmed = [seen.index for seen in played.observations if seen.confirms]
    assert played.end.index in confirmed
    assert len(set(confirmed)) == len(confirmed) == 2


def test_decision_compares_the_best_spec_with_the_best_other_one_of_its_price():
    service = KnownService(bound=0.05, noise=0.03)
    played = play(service, 30)
    assert isinstance(played.end, Recommend)
    best, other = played.end.best, played.end.alternative
    assert best == played.end.index
    assert other is not None
    assert played.end.probability is not None
    cost = service.problem.log_cost
    assert cost[other.index] == pytest.approx(cost[best])
    same_price = {
        seen.index
        for seen in played.observations
        if seen.feasible and abs(cost[seen.index] - cost[best]) < 1e-9 and seen.index != best
    }
    assert other.index in same_price
    values = {row: service.log_objective(row) for row in same_price}
    assert values[other.index] >= max(values.values()) - 0.1
    assert played.decisions[0].alternative is None


@pytest.mark.parametrize(("margin", "safe"), [(-1.0, True), (-0.01, False)])
def test_decision_is_safe_only_when_its_best_spec_is(margin: float, safe: bool):  # noqa: FBT001 a parameter
    space = grid(range(4), log_bounds=(0.0,))
    seen = [TrialObservation(row, log_objective=1.0, margins=(margin,), margin_noise=0.1) for row in (0, 3)]
    decision = decide(space, seen, (), Budget(8), settings=NEVER_ENOUGH)
    assert (decision.best in (0, 3), decision.is_safe) == (True, safe)


def test_small_budget_is_used_for_exploration_only():
    played = play(KnownService(), 5)
    assert not any(isinstance(decision, Confirm) for decision in played.decisions)
    assert len(explored(played)) == 5


def test_small_budget_is_used_for_confirmation_once_the_regret_is_small():
    played = play(KnownService(), 10, settings=replace(SearchSettings(), regret=0.5))
    assert isinstance(played.decisions[-2], Confirm)
    assert len(explored(played)) == 8


def test_search_stops_when_the_expected_regret_is_small():
    played = play(KnownService(), 60, settings=replace(SearchSettings(), regret=0.02))
    assert isinstance(played.end, Recommend)
    assert played.end.because == "regret"
    assert len(played.observations) < 40
    assert played.end.expected_regret < 0.02
    assert KnownService().log_objective(played.end.index) >= KnownService().best + math.log(0.95)


def test_decision_has_the_scatter_between_trials_of_one_spec():
    """Each trial reports no noise; the scatter is learned from all of them."""
    service, rng = KnownService(), np.random.default_rng(5)
    rows = 2 * [row for row in range(service.problem.size) if service.boots(row)][::4]

    def repeatability(noise: float) -> float:
        seen = [service.measure(row, rng) for row in rows]
        noisy = [
            replace(observation, log_objective=observation.log_objective + rng.normal(0, noise))
            for observation in seen
        ]
        decision = decide(service.problem, noisy, (), Budget(60), settings=SearchSettings())
        return decision.repeatability

    assert repeatability(0.0) < 0.05
    assert 0.1 < repeatability(0.2) < 0.4


def test_impossible_bound_ends_with_the_constraint_and_the_nearest_spec():
    service = KnownService(bound=1e-4)
    played = play(service, 30, settings=SearchSettings())
    assert isinstance(played.end, Impossible)
    assert played.end.constraint == 0
    assert played.end.nearest is not None
    assert played.end.margins[0] > 0
    assert played.end.margins[0] == min(seen.margins[0] for seen in played.observations if seen.boots)
    assert len(played.observations) < 30


def test_search_names_no_constraint_when_nothing_boots():
    problem = KnownService().problem
    observations = [TrialObservation(row, cause="crash") for row in range(6)]
    assert decide(problem, observations, [], Budget(6), settings=NEVER_ENOUGH) == Impossible(
        None, None, (), 0.0
    )


def test_search_continues_while_nothing_has_booted():
    problem = KnownService().problem
    observations = [TrialObservation(row, cause="crash") for row in range(6)]
    decision = decide(problem, observations, [], Budget(20), settings=NEVER_ENOUGH)
    assert isinstance(decision, Explore)
    assert decision.indices[0] not in range(6)


def test_search_is_exhausted_when_every_spec_was_measured():
    service, rng = KnownService(), np.random.default_rng(0)
    observations = [service.measure(row, rng) for row in range(service.problem.size)]
    again = decide(service.problem, observations, [], Budget(200), settings=NEVER_ENOUGH)
    assert isinstance(again, Confirm)
    observations += [service.measure(row, rng, confirms=True) for row in again.indices]
    end = decide(service.problem, observations, [], Budget(len(observations)), settings=NEVER_ENOUGH)
    assert isinstance(end, Recommend)
    assert end.because == "exhausted"
    assert service.log_objective(end.index) == pytest.approx(service.best)


def test_only_spec_of_a_space_is_recommended_if_it_meets_its_constraints():
    problem = replace(
        KnownService().problem,
        **{name: getattr(KnownService().problem, name)[:1] for name in ("coordinates", "ranks", "log_cost")},
    )
    seen = TrialObservation(0, log_objective=1.0, noise=0.01)
    decision = decide(problem, [seen], [], Budget(20), settings=NEVER_ENOUGH)
    assert isinstance(decision, Confirm)
    assert isinstance(
        decide(problem, [seen, replace(seen, confirms=True)], [], Budget(20), settings=NEVER_ENOUGH),
        Recommend,
    )


@pytest.mark.parametrize("algorithm", ["grid", "random", "tpe"])
def test_other_algorithms_choose_the_specs_to_explore(algorithm):
    pytest.importorskip(
        "optuna", reason="the package optuna is not installed"
    ) if algorithm == "tpe" else None
    played = play(KnownService(noise=0.01), 16, algorithm=algorithm)
    assert isinstance(played.end, Recommend)
    assert len(explored(played)) == len(set(explored(played))) == 14
    if algorithm == "grid":
        assert explored(played) == sorted(explored(played))
