"""Searches replayed on measured services: how good is what they recommend, after how many trials.

Every service of the tables under --data, under each of its bounds, with --seeds seeds; trials have the noise that repeated measurements had,
and those that do not boot count. Constants of the search were chosen on the tables of the project, and are the same for any other.

A run's ratio is the true value of the recommended spec over the optimum, 0 if it breaks a bound. The optimum is that of the smoothed surface
(`rig.surfaces`), as single points far above their neighbours are rather slips of a measurement; `raw` takes them for the truth.
`5 %`, `10 %` and `20 %` are separate runs with that share of the space as their budget, start, failures and confirmations included. A warm start
learns from searches of the other services only. Violations are one further measurement of what was recommended.
Kernels are a stress test, without bars.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # before this file's own directory, in which it has the package's name
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # small matrices; the other cores have searches of their own

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import track  # noqa: E402
from rich.table import Table  # noqa: E402
from rig import replay, surfaces  # noqa: E402
from rig.harness import Bar, Interval, at_least, interval, median, report  # noqa: E402
from rig.replay import Noisy, Run  # noqa: E402
from scipy.stats import beta, hypergeom  # noqa: E402

from tuner.search import baselines, transfer  # noqa: E402
from tuner.search.problem import Earlier  # noqa: E402
from tuner.settings import SearchSettings  # noqa: E402

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


def main() -> None:
    options = _options()
    console = Console(stderr=True, width=120)
    found = surfaces.load(options.data)
    if not found:
        raise SystemExit(
            f"--data: no table of {options.data} has columns that are known; see rig/surfaces.py"
        )
    seeds = 1 if options.quick else options.seeds
    if options.quick:
        found = [one for one in found if one.group != "kernels"][::3]
    noise = surfaces.deviations(options.data)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        run = partial(_all, pool, console)
        cold = run(
            "cold",
            [
                Task("slipway", share, Noisy(one, seed, noise))
                for one in found
                for seed in range(seeds)
                for share in SHARES
            ],
        )
        warm = run("warm", _warm_tasks(cold))
        others = run("baselines", [
            Task(name, SHARES[-1], Noisy(one, seed, noise)) for name in baselines.ALGORITHMS for one in found for seed in range(seeds)
        ])  # fmt: skip
        stopped = run(
            "stopping",
            [
                Task("stopping", 2 * SHARES[-1], Noisy(one, seed, noise))
                for one in found
                for seed in range(max(1, seeds // 4))
            ],
        )
    every = [*cold, *warm, *others]
    for group in GROUPS:
        _print(console, group, [one for one in every if one.task.noisy.surface.group == group])
    results, bars = _summary(every, stopped)
    report(
        "tuner",
        {"services": len({one.service for one in found}), "surfaces": len(found), "seeds": seeds, **results},
        bars,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(os.environ.get("SLIPWAY_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument(
        "--data", type=Path, default=default, help="directory of tables, searched with its subdirectories"
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true", help="one seed of every third surface")
    return parser.parse_args()


def _all(pool: ProcessPoolExecutor, console: Console, what: str, tasks: Sequence[Task]) -> list[Result]:
    work = pool.map(_play, tasks, chunksize=1)
    return list(track(work, description=f"{what:10}", total=len(tasks), console=console))


def _play(task: Task) -> Result:
    surface = task.noisy.surface
    started = time.perf_counter()
    if task.method in baselines.ALGORITHMS:
        propose = baselines.ALGORITHMS[task.method]
        run = replay.play_baseline(task.noisy, task.trials, propose, SearchSettings().safety_quantile)
    elif task.method == "stopping":
        run = replay.play(task.noisy, task.trials, SearchSettings())
    else:
        lessons = transfer.lessons(surface.problem, task.earlier)
        run = replay.play(task.noisy, task.trials, lessons=lessons)
    took = time.perf_counter() - started
    near = (i for i, row in enumerate(run.course, 1) if replay.ratio(surface, row, smoothed=True) >= NEAR)
    return Result(
        task=Task(task.method, task.share, task.noisy),
        run=run,
        ratio=replay.ratio(surface, run.recommended, smoothed=True),
        raw=replay.ratio(surface, run.recommended, smoothed=False),
        excess=replay.fresh_excess(task.noisy, run.recommended),
        reached=next(near, task.trials + 1),
        seconds=took / len(run.observations),
    )


def _warm_tasks(cold: Sequence[Result]) -> list[Task]:
    """Return a search of each service that knows those of the others: of the same group, bounds in number and seed, in full budget."""
    full = [one for one in cold if one.task.share == SHARES[-1] and one.task.noisy.surface.group != "kernels"]
    tasks = []
    for one in full:
        mine = one.task.noisy
        earlier = tuple(
            replay.as_earlier(other.task.noisy.surface, other.run)
            for other in full
            if other.task.noisy.seed == mine.seed
            and other.task.noisy.surface.group == mine.surface.group
            and other.task.noisy.surface.service != mine.surface.service
            and other.task.noisy.surface.bounded == mine.surface.bounded
        )
        if earlier:
            tasks += [Task("slipway warm", share, mine, earlier) for share in SHARES]
    return tasks


def _summary(every: Sequence[Result], stopped: Sequence[Result]) -> tuple[dict[str, Any], list[Bar]]:
    results: dict[str, Any] = {}
    bars: list[Bar] = []
    for group, name in GROUPS.items():
        of = [one for one in every if one.task.noisy.surface.group == group]
        if not of:
            continue
        results[group] = _of_group(of, [one for one in stopped if one.task.noisy.surface.group == group])
        if group != "kernels":
            bars += _bars(name, of)
    return results, bars


def _of_group(of: Sequence[Result], stopped: Sequence[Result]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for method, share in dict.fromkeys((one.task.method, one.task.share) for one in of):
        some = _some(of, method, share)
        reached = [one.reached for one in some]
        found[f"{method} {share:.0%}"] = {
            "ratio": _mean([one.ratio for one in some]), "raw": _mean([one.raw for one in some]),
            "median": round(float(np.median([one.ratio for one in some])), 4),
            "p10": round(float(np.quantile([one.ratio for one in some], 0.1)), 4),
            "near": round(float(np.mean([one.ratio >= NEAR for one in some])), 4),
            "trialsToNear": [float(np.median(reached)), float(np.quantile(reached, 0.9))],
            "failedTrials": round(float(np.mean([sum(not o.feasible for o in one.run.observations) for one in some])), 2),
            "msPerTrial": round(1000 * float(np.median([one.seconds for one in some])), 1),
        }  # fmt: skip
    missed = [1 - one.ratio for one in stopped]
    found["stopping"] = {
        "trialsShare": round(float(np.mean([len(one.run.observations) / one.task.noisy.surface.problem.size for one in stopped])), 4),
        "statedRegret": round(float(np.mean([one.run.stated_regret for one in stopped])), 4),
        "regret": round(float(np.mean(missed)), 4), "falseStops": round(float(np.mean([miss > 0.05 for miss in missed])), 4),
    }  # fmt: skip
    return found


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


def _print(console: Console, group: str, of: Sequence[Result]) -> None:
    if not of:
        return
    table = Table(title=GROUPS[group], title_justify="left", box=None)
    for column in ("search", "budget", "ratio", "raw", "p10", "within 5 %", "trials to 5 %", "ms/trial"):
        table.add_column(column, justify="left" if column == "search" else "right")
    for label, row in _of_group(of, of[:1]).items():
        if label == "stopping":
            continue
        method, _, share = label.rpartition(" ")
        ends = row["ratio"]
        table.add_row(
            method, share, f"{ends.value:.3f} ({ends.low:.3f}-{ends.high:.3f})", f"{row['raw'].value:.3f}", f"{row['p10']:.2f}",
            f"{row['near']:.0%}", f"{row['trialsToNear'][0]:g}", f"{row['msPerTrial']:.0f}",
        )  # fmt: skip
    console.print(table)


if __name__ == "__main__":
    main()
