"""The search, as one function: what was observed → what to do next. It keeps nothing between two calls.

Trials are chosen by a Gaussian process that enumerates the whole space (`acquisition`), from the first one that ran on (`design`). When
what is expected to be missed is small enough (`regret`), or the trials are almost spent, the winner and its runner-up are measured again,
and the better one of what is then known is recommended.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tuner.search import algorithms, choice, design, pruning, transfer
from tuner.search.acquisition import log_trial_cost, score
from tuner.search.choice import Candidate
from tuner.search.decision import Confirm, Decision, Explore, Impossible, Recommend, Wait
from tuner.search.lessons import TransferPrior
from tuner.search.posterior import SpaceModel
from tuner.search.problem import Budget, Earlier, Integers, Observation, Problem
from tuner.search.regret import Outlook, outlook
from tuner.settings import SearchSettings

BAYESIAN = "bayesian"


def decide(
    problem: Problem,
    observations: Sequence[Observation],
    pending: Sequence[int],
    budget: Budget,
    earlier: Sequence[Earlier] = (),
    *,
    settings: SearchSettings,
    seed: int = 0,
    algorithm: str = "bayesian",
) -> Decision:
    """Return what to do next.

    Args:
        problem: the space.
        observations: trials that are over, in their order.
        pending: specs of the trials that run.
        budget: in all.
        earlier: finished experiments of similar services.
        settings: of the search.
        seed: the same seed and observations give the same decision.
        algorithm: `bayesian`, or one of `baselines.ALGORITHMS`, which then chooses what is explored; the rest is the same.
    """
    earlier = earlier if algorithm == BAYESIAN else ()  # the others do not learn
    lessons = transfer.learn(problem, earlier, observations, settings)
    search = Search(problem, tuple(observations), tuple(pending), budget, lessons, settings, seed, algorithm)
    weights = dict(lessons.weights) if lessons is not None else {}
    learned = tuple((one.name, weights.get(one.name, 0.0)) for one in earlier)
    return replace(search.decide(), learned=learned, repeatability=search.repeatability)


@dataclass(frozen=True)
class Search:
    """One look at a search."""

    problem: Problem
    observations: tuple[Observation, ...]
    pending: tuple[int, ...]
    budget: Budget
    lessons: TransferPrior | None
    settings: SearchSettings
    seed: int
    algorithm: str = BAYESIAN

    def decide(self) -> Decision:
        """Return what to do next."""
        left = self.budget.trials - len(self.observations) - len(self.pending)
        slots = min(left, self.budget.parallelism - len(self.pending))
        if not self._knows_something:
            return self._begin(left, slots)
        belief = self._belief
        ranked = choice.ranked(self.observations, belief.prediction, quantile=self.settings.safety_quantile)
        leading = choice.best(ranked)
        best = leading.index if leading is not None else None
        ahead = outlook(belief, self._open, best, self._rng)
        enough = self._is_enough(ranked, ahead)
        if enough and self.lessons is not None:
            # What earlier experiments leave out they know nothing of: enough is what is enough without them too.
            ahead = outlook(replace(belief, lessons=None), self._open, best, self._rng)
            enough = self._is_enough(ranked, ahead)
        unconfirmed = self._unconfirmed(ranked)
        reserve = len(unconfirmed) if self.budget.trials >= self.settings.confirm_from else 0
        exhausted = not len(self._open)
        if left > reserve and not exhausted and not enough:
            if slots <= 0:
                return Wait(ahead.regret, best=best)
            chosen = self._next(belief, ranked, min(slots, left - reserve))
            return Explore(chosen, ahead.regret, best=best)
        if self.pending:
            return Wait(ahead.regret, best=best)
        if unconfirmed and left > 0:
            return Confirm(unconfirmed[: max(slots, 1)], ahead.regret, best=best)
        because = "exhausted" if exhausted else "regret" if enough else "budget"
        return self._conclude(ranked, ahead, because)

    @property
    def repeatability(self) -> float:
        """How far trials of one spec are apart, beside what they say themselves; see `Decision`."""
        return self._belief.prediction.repeatability if self._knows_something else 0.0

    @cached_property
    def _belief(self) -> SpaceModel:
        return SpaceModel(self.problem, self.observations, self.lessons)

    @property
    def _knows_something(self) -> bool:
        return any(seen.boots for seen in self.observations)

    def _begin(self, left: int, slots: int) -> Decision:
        """Begin in the middle; or, where nothing of that booted, go on at random; or with what was learned elsewhere."""
        if left <= 0 or not len(self._open):
            return Wait(1.0) if self.pending else Impossible(None, None, (), 0.0)
        if slots <= 0:
            return Wait(1.0)
        rng = np.random.default_rng(self.seed)
        if self.algorithm != BAYESIAN:
            return Explore(self._by_baseline(slots), 1.0)
        if self.lessons is not None:
            # Where what was best elsewhere does not boot, any that runs is sought first.
            promise = (
                transfer.chances(self.lessons, self._belief.p_boots)
                if self.observations
                else transfer.hopes(self.lessons)
            )
            order = self._open[np.argsort(-promise[self._open], kind="stable")]
        else:
            first = design.spread(self.problem, self.budget.parallelism, rng)
            planned = [row for row in first if row in set(self._open)]
            order = np.array([*planned, *rng.permutation(np.setdiff1d(self._open, planned))], dtype=np.int64)
        return Explore(tuple(int(row) for row in order[:slots]), 1.0)

    @property
    def _open(self) -> Integers:
        """What may still be explored."""
        shut = pruning.out_of_memory(self.problem, self.observations)
        shut[[seen.index for seen in self.observations]] = True
        shut[list(self.pending)] = True
        return np.flatnonzero(~shut).astype(np.int64)

    @property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, len(self.observations)])

    def _unconfirmed(self, ranked: Sequence[Candidate]) -> tuple[int, ...]:
        """Return the winner and the runner-up, as far as they were not measured again."""
        told = sum(seen.confirms for seen in self.observations)
        wanted = [one.index for one in ranked[:2] if one.confirmations == 0]
        return tuple(wanted[: max(self.settings.confirmations - told, 0)])

    def _is_enough(self, ranked: Sequence[Candidate], ahead: Outlook) -> bool:
        if len(self.observations) < self.settings.least_trials:
            return False
        if ranked:
            return ahead.regret < self.settings.regret
        return ahead.p_any < self.settings.hopeless

    def _next(self, belief: SpaceModel, ranked: Sequence[Candidate], count: int) -> tuple[int, ...]:
        """Return the specs that promise most; of several, each as if those before had given what is expected of them."""
        if self.algorithm != BAYESIAN:
            return self._by_baseline(count)
        if self._looks_for_itself:
            belief = replace(belief, lessons=None)
        chosen: list[int] = []
        leading = choice.best(ranked)
        best = leading.log_objective if leading is not None else None
        left = self._open
        for row in self.pending:
            belief = _as_expected(belief, row)
        while len(chosen) < count and len(left):
            worth = score(
                belief.prediction, best, log_trial_cost(self.observations, belief.prediction.p_boots)
            )
            row = int(left[int(np.argmax(worth[left]))])
            chosen.append(row)
            left = left[left != row]
            if len(chosen) < count:
                belief = _as_expected(belief, row)
        return tuple(chosen)

    @property
    def _looks_for_itself(self) -> bool:
        """Whether this trial is chosen as if there were no earlier experiments.

        Where these say that a part of the space is no good, a search that believes them never learns otherwise: what is tried ranks as
        they say. Every other trial without them costs at most twice the trials of a search from nothing. Not the last one: nothing
        comes after it that what it teaches would help.
        """
        ran = sum(seen.boots for seen in self.observations)
        last = self.budget.trials - len(self.observations) - len(self.pending) <= 1
        return self.lessons is not None and ran >= self.settings.alone_from and ran % 2 == 0 and not last

    def _by_baseline(self, count: int) -> tuple[int, ...]:
        propose = algorithms.ALGORITHMS[self.algorithm]
        return propose(self.problem, self.observations, self._open, count, self.seed)

    def _conclude(self, ranked: Sequence[Candidate], ahead: Outlook, because: str) -> Decision:
        if not ranked:
            seen = choice.nearest(self.observations)
            if seen is None:
                return Impossible(None, None, (), ahead.p_any)
            return Impossible(int(np.argmax(seen.margins)), seen.index, seen.margins, ahead.p_any)
        winner = choice.best(ranked)
        assert winner is not None
        others = [one.index for one in ranked if one.whole and one.index != winner.index]
        return Recommend(
            index=winner.index,
            runner_up=others[0] if others else None,
            expected_regret=ahead.regret,
            because=because,
            best=winner.index,
        )


def _as_expected(belief: SpaceModel, row: int) -> SpaceModel:
    """Return the belief as if this spec had been measured, with what is expected of it (Kriging believer, Ginsbourger et al. 2010)."""
    found = belief.prediction
    fantasy = Observation(
        index=row,
        log_objective=float(found.objective.mean[row]),
        margins=tuple(float(margin.mean[row]) for margin in found.margins),
    )
    return replace(belief, observations=(*belief.observations, fantasy))
