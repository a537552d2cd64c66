"""The search as one function from observations to the next decision. It keeps no state between calls.

The first trials are a design (`design`). Once a trial has run, a Gaussian process scores the whole space
(`acquisition`). Once the expected regret is small (`regret`) or the budget is almost used up, the winner and
the runner-up are measured again. Then the best measured spec by the rules of `ranking` is recommended.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tuner.search import algorithms, design, pruning, ranking, transfer
from tuner.search.acquisition import log_trial_cost, score
from tuner.search.decision_values import Confirm, Decision, Explore, Impossible, Recommend, Wait
from tuner.search.posterior import SpaceModel, TransferPrior
from tuner.search.problem import Budget, Earlier, Integers, Problem, TrialObservation
from tuner.search.ranking import RankedSpec
from tuner.search.regret import Outlook, outlook
from tuner.settings import SearchSettings

BAYESIAN = "bayesian"
LEAST_TRIALS = 8
"""Trials before a search may stop by itself: with fewer, its expected regret is a guess."""
_ALONE_FROM = 2
"""Trials that ran from which every second spec is chosen without earlier experiments; the first two follow
them."""
_CONFIRM_FROM = 12
"""Budget in trials below which none is reserved for repetition: two would be more than a sixth of the
budget."""


def decide(
    problem: Problem,
    observations: Sequence[TrialObservation],
    pending: Sequence[int],
    budget: Budget,
    earlier: Sequence[Earlier] = (),
    *,
    settings: SearchSettings,
    seed: int = 0,
    algorithm: str = "bayesian",
) -> Decision:
    """Return the next decision.

    Args:
        problem: the space.
        observations: of the ended trials, in their order.
        pending: specs of the running trials.
        budget: of the whole experiment.
        earlier: finished experiments of similar services.
        settings: of the search.
        seed: the same seed and observations give the same decision.
        algorithm: `bayesian`, or a key of `algorithms.ALGORITHMS`, which then chooses the specs to explore.
    """
    earlier = earlier if algorithm == BAYESIAN else ()  # the others do not learn
    prior = transfer.learn(problem, earlier, observations)
    search = SearchStep(
        problem, tuple(observations), tuple(pending), budget, prior, settings, seed, algorithm
    )
    weights = dict(prior.weights) if prior is not None else {}
    learned = tuple((experiment.name, weights.get(experiment.name, 0.0)) for experiment in earlier)
    return replace(search.decide(), learned=learned)


@dataclass(frozen=True)
class SearchStep:
    """One step of a search."""

    problem: Problem
    observations: tuple[TrialObservation, ...]
    pending: tuple[int, ...]
    budget: Budget
    prior: TransferPrior | None
    settings: SearchSettings
    seed: int
    algorithm: str = BAYESIAN

    def decide(self) -> Decision:
        """Return the next decision."""
        decision = self._decide()
        if not self._anything_ran:
            return decision
        decision = replace(decision, repeatability=self._model.prediction.repeatability)
        leading = self._leading
        if leading is None:
            return decision
        return replace(
            decision,
            best=leading.index,
            probability=leading.probability,
            is_safe=leading.is_safe,
            alternative=ranking.alternative(self._ranked, leading, self.problem.log_cost),
        )

    def _decide(self) -> Decision:
        remaining = self.budget.trials - len(self.observations) - len(self.pending)
        slots = min(remaining, self.budget.parallelism - len(self.pending))
        if not self._anything_ran:
            return self._begin(remaining, slots)
        model = self._model
        best = self._leading.index if self._leading is not None else None
        expected = outlook(model, self._unmeasured, best, self._rng)
        is_enough = self._is_enough(expected)
        if is_enough and self.prior is not None:
            # The prior may be wrong about specs that no earlier experiment measured: the search ends only if
            # the expected regret is small enough without the prior, too.
            expected = outlook(replace(model, prior=None), self._unmeasured, best, self._rng)
            is_enough = self._is_enough(expected)
        unconfirmed = self._unconfirmed()
        reserved = len(unconfirmed) if self.budget.trials >= _CONFIRM_FROM else 0
        is_exhausted = not len(self._unmeasured)
        if remaining > reserved and not is_exhausted and not is_enough:
            if slots <= 0:
                return Wait(expected.regret)
            return Explore(self._next(min(slots, remaining - reserved)), expected.regret)
        if self.pending:
            return Wait(expected.regret)
        if unconfirmed and remaining > 0:
            return Confirm(unconfirmed[: max(slots, 1)], expected.regret)
        because = "exhausted" if is_exhausted else "regret" if is_enough else "budget"
        return self._conclude(expected, because)

    @cached_property
    def _model(self) -> SpaceModel:
        return SpaceModel(self.problem, self.observations, self.prior)

    @cached_property
    def _ranked(self) -> tuple[RankedSpec, ...]:
        """The measured specs, best first."""
        quantile = ranking.SAFETY_QUANTILE
        return ranking.ranked(self.observations, self._model.prediction, quantile=quantile)

    @property
    def _leading(self) -> RankedSpec | None:
        """The spec that would be recommended now."""
        return ranking.best(self._ranked)

    @property
    def _anything_ran(self) -> bool:
        return any(seen.boots for seen in self.observations)

    def _begin(self, remaining: int, slots: int) -> Decision:
        """Return the decision before any spec has run.

        The algorithm `bayesian` takes specs by earlier experiments, or else the design, then random ones.
        """
        if remaining <= 0 or not len(self._unmeasured):
            if self.pending:
                return Wait(expected_regret=1.0)
            return Impossible(constraint=None, nearest=None, margins=(), p_any=0.0)
        if slots <= 0:
            return Wait(1.0)
        rng = np.random.default_rng(self.seed)
        if self.algorithm != BAYESIAN:
            return Explore(self._by_algorithm(slots), 1.0)
        if self.prior is not None:
            # Once the best specs by earlier experiments did not boot, the likeliest to be feasible go first.
            promise = (
                transfer.log_feasibility(self.prior, self._model.p_boots)
                if self.observations
                else transfer.log_merits(self.prior)
            )
            order = self._unmeasured[np.argsort(-promise[self._unmeasured], kind="stable")]
        else:
            first = design.spread(self.problem, self.budget.parallelism, rng)
            planned = [row for row in first if row in set(self._unmeasured)]
            order = np.array(
                [*planned, *rng.permutation(np.setdiff1d(self._unmeasured, planned))], dtype=np.int64
            )
        return Explore(tuple(int(row) for row in order[:slots]), 1.0)

    @property
    def _unmeasured(self) -> Integers:
        """Rows of the specs that may still be measured."""
        excluded = pruning.out_of_memory(self.problem, self.observations)
        excluded[[seen.index for seen in self.observations]] = True
        excluded[list(self.pending)] = True
        return np.flatnonzero(~excluded).astype(np.int64)

    @property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, len(self.observations)])

    def _unconfirmed(self) -> tuple[int, ...]:
        """Return the winner and the runner-up without those already repeated, at most the allowed repeats."""
        confirmations = sum(seen.confirms for seen in self.observations)
        unconfirmed = [spec.index for spec in self._ranked[:2] if spec.confirmations == 0]
        return tuple(unconfirmed[: max(self.settings.confirmations - confirmations, 0)])

    def _is_enough(self, expected: Outlook) -> bool:
        """Whether no further spec is worth a trial.

        With a feasible spec this depends on the expected regret, without one on the chance that any exists.
        """
        if len(self.observations) < LEAST_TRIALS:
            return False
        if self._ranked:
            return expected.regret < self.settings.regret
        return expected.p_any < self.settings.hopeless

    def _next(self, count: int) -> tuple[int, ...]:
        """Return the most promising specs, each chosen as if those before had their expected values."""
        if self.algorithm != BAYESIAN:
            return self._by_algorithm(count)
        model = replace(self._model, prior=None) if self._ignores_earlier else self._model
        chosen: list[int] = []
        best = self._leading.log_objective if self._leading is not None else None
        candidates = self._unmeasured
        for row in self.pending:
            model = _as_expected(model, row)
        while len(chosen) < count and len(candidates):
            scores = score(
                model.prediction, best, log_trial_cost(self.observations, model.prediction.p_boots)
            )
            row = int(candidates[int(np.argmax(scores[candidates]))])
            chosen.append(row)
            candidates = candidates[candidates != row]
            if len(chosen) < count:
                model = _as_expected(model, row)
        return tuple(chosen)

    @property
    def _ignores_earlier(self) -> bool:
        """Whether the next spec is chosen without earlier experiments: after every second trial that ran.

        A search that always follows earlier experiments never tries the parts of the space that they ranked
        low, and so never finds out that they mislead. Alternating costs at most twice the trials of a search
        without them. The last trial follows them, as no later trial could use its result.
        """
        ran = sum(seen.boots for seen in self.observations)
        last = self.budget.trials - len(self.observations) - len(self.pending) <= 1
        return self.prior is not None and ran >= _ALONE_FROM and ran % 2 == 0 and not last

    def _by_algorithm(self, count: int) -> tuple[int, ...]:
        propose = algorithms.ALGORITHMS[self.algorithm]
        return propose(self.problem, self.observations, self._unmeasured, count, self.seed)

    def _conclude(self, expected: Outlook, because: str) -> Decision:
        if self._leading is not None:
            return Recommend(self._leading.index, expected.regret, because)
        nearest = ranking.nearest(self.observations)
        if nearest is None:
            return Impossible(constraint=None, nearest=None, margins=(), p_any=expected.p_any)
        return Impossible(
            constraint=int(np.argmax(nearest.margins)),
            nearest=nearest.index,
            margins=nearest.margins,
            p_any=expected.p_any,
        )


def _as_expected(model: SpaceModel, row: int) -> SpaceModel:
    """Return the model as if this spec had its expected values (Kriging believer, Ginsbourger 2010)."""
    prediction = model.prediction
    fantasy = TrialObservation(
        index=row,
        log_objective=float(prediction.objective.mean[row]),
        margins=tuple(float(margin.mean[row]) for margin in prediction.margins),
    )
    return replace(model, observations=(*model.observations, fantasy))
