"""Scores of searches on measured surfaces: ratios to the optimum, trials until near it, violations, bars."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import beta, hypergeom

from rig.harness import Bar, Interval, at_least, interval, median
from rig.searches import replay, surfaces
from rig.searches.replay import Noisy, SearchRun
from tuner.search.problem import Earlier

SHARES = (0.05, 0.1, 0.2)
BARS = {("slipway", 0.1): 0.95, ("slipway", 0.2): 0.98, ("slipway warm", 0.05): 0.95}
NEAR, NEAR_BAR, VIOLATIONS_BAR, FASTER_BAR = 0.95, 0.95, 0.01, 3.0
KERNEL_TRIALS = 40
GROUPS = {"slices": "GPU slices", "profiles": "GPU profiles", "kernels": "kernels"}


@dataclass(frozen=True)
class Task:
    """One search to run."""

    method: str
    share: float
    noisy: Noisy
    earlier: tuple[Earlier, ...] = ()

    @property
    def trials(self) -> int:
        """The number of its trials."""
        size = self.noisy.surface.problem.size
        return min(
            max(round(self.share * size), 1), KERNEL_TRIALS if self.noisy.surface.group == "kernels" else size
        )


@dataclass(frozen=True)
class ScoredSearch:
    """The result of a search."""

    task: Task = field(repr=False)
    run: SearchRun
    ratio: float
    raw: float
    excess: float
    reached: int
    """Trials until the recommended spec was within 5 % of the optimum; budget + 1 if never."""
    seconds: float
    """Of thought, per trial."""


def summary(
    every: Sequence[ScoredSearch], stopped: Sequence[ScoredSearch]
) -> tuple[dict[str, Any], list[Bar]]:
    """Return figures and bars by group and of all services; kernels have no bars and are no services."""
    results: dict[str, Any] = {}
    bars: list[Bar] = []
    for group, name in GROUPS.items():
        of_this_group = [result for result in every if result.task.noisy.surface.group == group]
        if not of_this_group:
            continue
        results[group] = of_group(
            of_this_group, [result for result in stopped if result.task.noisy.surface.group == group]
        )
        if group != "kernels":
            bars += _bars(name, of_this_group)
    services, alone = (
        [result for result in runs if result.task.noisy.surface.group != "kernels"]
        for runs in (every, stopped)
    )
    results["together"] = of_group(services, alone)
    return results, bars + _bars("all services", services)


def of_group(results: Sequence[ScoredSearch], stopped: Sequence[ScoredSearch]) -> dict[str, Any]:
    """Return the figures of one group, by method and budget, and of searches that stopped early."""
    figures: dict[str, Any] = {}
    for method, share in dict.fromkeys((result.task.method, result.task.share) for result in results):
        chosen = _some(results, method, share)
        reached = [result.reached for result in chosen]
        figures[f"{method} {share:.0%}"] = {
            "ratio": _mean([result.ratio for result in chosen]),
            "raw": _mean([result.raw for result in chosen]),
            "median": round(float(np.median([result.ratio for result in chosen])), 4),
            "p10": round(float(np.quantile([result.ratio for result in chosen], 0.1)), 4),
            "near": round(float(np.mean([result.ratio >= NEAR for result in chosen])), 4),
            "trialsToNear": [float(np.median(reached)), float(np.quantile(reached, 0.9))],
            "failedTrials": round(
                float(np.mean([sum(not o.feasible for o in result.run.observations) for result in chosen])), 2
            ),
            "msPerTrial": round(1000 * float(np.median([result.seconds for result in chosen])), 1),
        }
    for method in dict.fromkeys(result.task.method for result in stopped):
        figures[method] = _stopping([result for result in stopped if result.task.method == method])
    return figures


def _stopping(results: Sequence[ScoredSearch]) -> dict[str, float]:
    missed = [1 - result.ratio for result in results]
    shares = [len(result.run.observations) / result.task.noisy.surface.problem.size for result in results]
    return {
        "trialsShare": round(float(np.mean(shares)), 4),
        "statedRegret": round(float(np.mean([result.run.stated_regret for result in results])), 4),
        "regret": round(float(np.mean(missed)), 4),
        "falseStops": round(float(np.mean([miss > 0.05 for miss in missed])), 4),
    }


def _bars(name: str, results: Sequence[ScoredSearch]) -> list[Bar]:
    bars = [
        at_least(
            f"{name}: {method} at {share:.0%} of the space, mean ratio",
            _mean([result.ratio for result in chosen]),
            bar,
        )
        for (method, share), bar in BARS.items()
        if (chosen := _some(results, method, share))
    ]
    full = _some(results, "slipway", SHARES[-1])
    near = interval([float(result.ratio >= NEAR) for result in full], _average)
    bars.append(at_least(f"{name}: runs within 5 % at {SHARES[-1]:.0%}", near, NEAR_BAR))
    bars += _violations(name, results)
    by_chance = _by_chance(
        {result.task.noisy.surface.name: result.task.noisy.surface for result in full}.values()
    )
    faster = interval([result.reached for result in full], lambda reached: by_chance / median(reached))
    bars.append(
        at_least(f"{name}: trials to 5 %, random ({by_chance}) over ours (medians)", faster, FASTER_BAR)
    )
    return bars


def _by_chance(services: Iterable[surfaces.MeasuredSurface]) -> int:
    """Return the exact median of the trials until a random order meets a spec within 5 %."""
    spaces = [
        (
            surface.problem.size,
            sum(replay.ratio(surface, row, smoothed=True) >= NEAR for row in range(surface.problem.size)),
        )
        for surface in services
    ]
    trials = 1
    while np.mean([hypergeom.sf(0, size, near, min(trials, size)) for size, near in spaces]) < 0.5:
        trials += 1
    return trials


def _violations(name: str, results: Sequence[ScoredSearch]) -> list[Bar]:
    ours = [
        result
        for result in results
        if result.task.method.startswith("slipway") and result.task.noisy.surface.margins.shape[1]
    ]
    if not ours:
        return []
    broken = sum(result.excess > 0 for result in ours)
    bound = _upper_bound(broken, len(ours))
    worst = max(result.excess for result in ours)
    label = f"{name}: recommendations that break a bound ({broken} of {len(ours)}, by at most {worst:.1%})"
    return [Bar(label, bound, VIOLATIONS_BAR, bound <= VIOLATIONS_BAR)]


def _some(results: Sequence[ScoredSearch], method: str, share: float) -> list[ScoredSearch]:
    return [result for result in results if (result.task.method, result.task.share) == (method, share)]


def _average(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _mean(values: Sequence[float]) -> Interval:
    return interval(values, _average)


def _upper_bound(events: int, count: int) -> float:
    """Return the one-sided 95 % upper bound of a probability (Clopper and Pearson, 1934)."""
    return 1.0 if events >= count else round(float(beta.ppf(0.95, events + 1, count - events)), 5)
