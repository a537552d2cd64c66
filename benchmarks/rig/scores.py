"""How good searches on measured surfaces were: ratios to the optimum, trials until near it, broken bounds, and the bars for all of them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import beta, hypergeom

from rig import replay, surfaces
from rig.harness import Bar, Interval, at_least, interval, median
from rig.replay import Noisy, Run
from tuner.search.problem import Earlier

SHARES = (0.05, 0.1, 0.2)
BARS = {("slipway", 0.1): 0.95, ("slipway", 0.2): 0.98, ("slipway warm", 0.05): 0.95}
NEAR, NEAR_BAR, VIOLATIONS_BAR, FASTER_BAR = 0.95, 0.95, 0.01, 3.0
KERNEL_TRIALS = 40
GROUPS = {"slices": "GPU slices", "profiles": "GPU profiles", "kernels": "kernels"}


@dataclass(frozen=True)
class Task:
    """One search."""

    method: str
    share: float
    noisy: Noisy
    earlier: tuple[Earlier, ...] = ()

    @property
    def trials(self) -> int:
        """Its budget."""
        size = self.noisy.surface.problem.size
        return min(
            max(round(self.share * size), 1), KERNEL_TRIALS if self.noisy.surface.group == "kernels" else size
        )


@dataclass(frozen=True)
class Result:
    """What came of it."""

    task: Task = field(repr=False)
    run: Run
    ratio: float
    raw: float
    excess: float
    reached: int
    """Trials until what would be recommended was within 5 % of the optimum; one more than the budget if never."""
    seconds: float
    """Of thought, per trial."""


def summary(every: Sequence[Result], stopped: Sequence[Result]) -> tuple[dict[str, Any], list[Bar]]:
    """Return figures by group and of all services together, and the bars of both; kernels have none and are not among the services."""
    results: dict[str, Any] = {}
    bars: list[Bar] = []
    for group, name in GROUPS.items():
        of = [one for one in every if one.task.noisy.surface.group == group]
        if not of:
            continue
        results[group] = of_group(of, [one for one in stopped if one.task.noisy.surface.group == group])
        if group != "kernels":
            bars += _bars(name, of)
    services, alone = (
        [one for one in some if one.task.noisy.surface.group != "kernels"] for some in (every, stopped)
    )
    results["together"] = of_group(services, alone)
    return results, bars + _bars("all services", services)


def of_group(of: Sequence[Result], stopped: Sequence[Result]) -> dict[str, Any]:
    """Return the figures of one group: of every method and budget, and of the searches that stopped by themselves."""
    found: dict[str, Any] = {}
    for method, share in dict.fromkeys((one.task.method, one.task.share) for one in of):
        some = _some(of, method, share)
        reached = [one.reached for one in some]
        found[f"{method} {share:.0%}"] = {
            "ratio": _mean([one.ratio for one in some]),
            "raw": _mean([one.raw for one in some]),
            "median": round(float(np.median([one.ratio for one in some])), 4),
            "p10": round(float(np.quantile([one.ratio for one in some], 0.1)), 4),
            "near": round(float(np.mean([one.ratio >= NEAR for one in some])), 4),
            "trialsToNear": [float(np.median(reached)), float(np.quantile(reached, 0.9))],
            "failedTrials": round(
                float(np.mean([sum(not o.feasible for o in one.run.observations) for one in some])), 2
            ),
            "msPerTrial": round(1000 * float(np.median([one.seconds for one in some])), 1),
        }
    for method in dict.fromkeys(one.task.method for one in stopped):
        found[method] = _stopping([one for one in stopped if one.task.method == method])
    return found


def _stopping(of: Sequence[Result]) -> dict[str, float]:
    missed = [1 - one.ratio for one in of]
    shares = [len(one.run.observations) / one.task.noisy.surface.problem.size for one in of]
    return {
        "trialsShare": round(float(np.mean(shares)), 4),
        "statedRegret": round(float(np.mean([one.run.stated_regret for one in of])), 4),
        "regret": round(float(np.mean(missed)), 4),
        "falseStops": round(float(np.mean([miss > 0.05 for miss in missed])), 4),
    }


def _bars(name: str, of: Sequence[Result]) -> list[Bar]:
    bars = [
        at_least(
            f"{name}: {method} at {share:.0%} of the space, mean ratio",
            _mean([one.ratio for one in some]),
            bar,
        )
        for (method, share), bar in BARS.items()
        if (some := _some(of, method, share))
    ]
    full = _some(of, "slipway", SHARES[-1])
    near = interval([float(one.ratio >= NEAR) for one in full], _average)
    bars.append(at_least(f"{name}: runs within 5 % at {SHARES[-1]:.0%}", near, NEAR_BAR))
    bars += _violations(name, of)
    by_chance = _by_chance({one.task.noisy.surface.name: one.task.noisy.surface for one in full}.values())
    faster = interval([one.reached for one in full], lambda reached: by_chance / median(reached))
    bars.append(
        at_least(f"{name}: trials to 5 %, random ({by_chance}) over ours (medians)", faster, FASTER_BAR)
    )
    return bars


def _by_chance(found: Iterable[surfaces.Surface]) -> int:
    """Return the median of the trials after which a random order has met a spec within 5 %: exact, and without a budget that cuts it off."""
    spaces = [
        (
            one.problem.size,
            sum(replay.ratio(one, row, smoothed=True) >= NEAR for row in range(one.problem.size)),
        )
        for one in found
    ]
    trials = 1
    while np.mean([hypergeom.sf(0, size, near, min(trials, size)) for size, near in spaces]) < 0.5:
        trials += 1
    return trials


def _violations(name: str, of: Sequence[Result]) -> list[Bar]:
    ours = [
        one for one in of if one.task.method.startswith("slipway") and one.task.noisy.surface.margins.shape[1]
    ]
    if not ours:
        return []
    broken = sum(one.excess > 0 for one in ours)
    bound = _upper_bound(broken, len(ours))
    worst = max(one.excess for one in ours)
    what = f"{name}: recommendations that break a bound ({broken} of {len(ours)}, by at most {worst:.1%})"
    return [Bar(what, bound, VIOLATIONS_BAR, bound <= VIOLATIONS_BAR)]


def _some(of: Sequence[Result], method: str, share: float) -> list[Result]:
    return [one for one in of if (one.task.method, one.task.share) == (method, share)]


def _average(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _mean(values: Sequence[float]) -> Interval:
    return interval(values, _average)


def _upper_bound(events: int, of: int) -> float:
    """Return the one-sided 95 % upper bound of a probability (Clopper and Pearson, 1934)."""
    return 1.0 if events >= of else round(float(beta.ppf(0.95, events + 1, of - events)), 5)
