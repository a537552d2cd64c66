"""Searches replayed on measured services: quality of the recommended spec, by the number of trials.

Every service of the tables under --data, under each of its bounds, with --seeds seeds. Trials have the noise
of repeated measurements, and those that do not boot count. Constants of the search were chosen on the tables
of the project and are the same for any other table.

The ratio of a run is the true value of the recommended spec over the optimum, 0 if it breaks a bound. The
optimum is that of the smoothed surface (`rig.searches.surfaces`), because single points far above their
neighbours are probably measurement errors; `raw` takes them for the truth. `5 %`, `10 %` and `20 %` are
separate runs with that share of the space as budget, including start, failures and confirmations. A warm
start learns from searches of the other services only. Violations are of one further measurement of the
recommended spec. Kernels are a stress test, without bars.
"""

import argparse
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # small matrices; the other cores have searches of their own

from rich.console import Console  # noqa: E402
from rich.progress import track  # noqa: E402
from rich.table import Table  # noqa: E402
from rig.harness import DATA, report  # noqa: E402
from rig.searches import replay, surfaces  # noqa: E402
from rig.searches.replay import Noisy  # noqa: E402
from rig.searches.scores import GROUPS, NEAR, SHARES, ScoredSearch, Task, of_group, summary  # noqa: E402

from tuner.search import algorithms, ranking, transfer  # noqa: E402
from tuner.search.problem import Earlier  # noqa: E402
from tuner.settings import SearchSettings  # noqa: E402


def main() -> None:
    options = _options()
    console = Console(stderr=True, width=120)
    services = surfaces.load(options.data)
    if not services:
        raise SystemExit(
            f"--data: no table of {options.data} has columns that are known; see rig/searches/surfaces.py"
        )
    seeds = 1 if options.quick else options.seeds
    if options.quick:
        services = [surface for surface in services if surface.group != "kernels"][::3]
    noise = surfaces.deviations(options.data)
    noisy = [Noisy(surface, seed, noise) for surface in services for seed in range(seeds)]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        run = partial(_all, pool, console)
        cold = run("cold", [Task("slipway", share, each) for each in noisy for share in SHARES])
        known = _earlier(cold)
        warm = run(
            "warm",
            [Task("slipway warm", share, each, earlier) for each, earlier in known for share in SHARES],
        )
        baselines = [Task(name, SHARES[-1], each) for name in algorithms.ALGORITHMS for each in noisy]
        others = run("baselines", baselines)
        stopped = run("stopping", _stopping(noisy, known, max(1, seeds // 4)))
    every = [*cold, *warm, *others]
    for group in GROUPS:
        _print(console, group, [surface for surface in every if surface.task.noisy.surface.group == group])
    results, bars = summary(every, stopped)
    report(
        "tuner",
        {
            "services": len({surface.service for surface in services}),
            "surfaces": len(services),
            "seeds": seeds,
            **results,
        },
        bars,
    )


def _stopping(
    noisy: Sequence[Noisy], known: Sequence[tuple[Noisy, tuple[Earlier, ...]]], seeds: int
) -> list[Task]:
    """Return searches of twice the budget that may stop early, cold and warm, with the first seeds."""
    budget = 2 * SHARES[-1]
    return [
        *(Task("stopping", budget, each) for each in noisy if each.seed < seeds),
        *(Task("stopping warm", budget, each, earlier) for each, earlier in known if each.seed < seeds),
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=DATA, help="directory of tables, searched with its subdirectories"
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true", help="one seed of every third surface")
    return parser.parse_args()


def _all(
    pool: ProcessPoolExecutor, console: Console, label: str, tasks: Sequence[Task]
) -> list[ScoredSearch]:
    work = pool.map(_play, tasks, chunksize=1)
    return list(track(work, description=f"{label:10}", total=len(tasks), console=console))


def _play(task: Task) -> ScoredSearch:
    surface = task.noisy.surface
    started = time.perf_counter()
    if task.method in algorithms.ALGORITHMS:
        propose = algorithms.ALGORITHMS[task.method]
        run = replay.play_baseline(task.noisy, task.trials, propose, ranking.SAFETY_QUANTILE)
    else:
        settings = SearchSettings() if task.method.startswith("stopping") else replay.TO_THE_END
        models = transfer.earlier_models(surface.problem, task.earlier)
        run = replay.play(task.noisy, task.trials, settings, models)
    took = time.perf_counter() - started
    near = (i for i, row in enumerate(run.course, 1) if replay.ratio(surface, row, smoothed=True) >= NEAR)
    return ScoredSearch(
        task=Task(task.method, task.share, task.noisy),
        run=run,
        ratio=replay.ratio(surface, run.recommended, smoothed=True),
        raw=replay.ratio(surface, run.recommended, smoothed=False),
        excess=replay.fresh_excess(task.noisy, run.recommended),
        reached=next(near, task.trials + 1),
        seconds=took / len(run.observations),
    )


def _earlier(cold: Sequence[ScoredSearch]) -> list[tuple[Noisy, tuple[Earlier, ...]]]:
    """Return each service with the full searches of its group that have its bounds and seed."""
    full = [
        result
        for result in cold
        if result.task.share == SHARES[-1] and result.task.noisy.surface.group != "kernels"
    ]
    tasks = []
    for result in full:
        mine = result.task.noisy
        earlier = tuple(
            replay.as_earlier(candidate.task.noisy.surface, candidate.run)
            for candidate in full
            if candidate.task.noisy.seed == mine.seed
            and candidate.task.noisy.surface.group == mine.surface.group
            and candidate.task.noisy.surface.service != mine.surface.service
            and candidate.task.noisy.surface.bounded == mine.surface.bounded
        )
        if earlier:
            tasks.append((mine, earlier))
    return tasks


def _print(console: Console, group: str, results: Sequence[ScoredSearch]) -> None:
    if not results:
        return
    table = Table(title=GROUPS[group], title_justify="left", box=None)
    for column in ("search", "budget", "ratio", "raw", "p10", "within 5 %", "trials to 5 %", "ms/trial"):
        table.add_column(column, justify="left" if column == "search" else "right")
    for label, row in of_group(results, ()).items():
        method, _, share = label.rpartition(" ")
        ends = row["ratio"]
        table.add_row(
            method,
            share,
            f"{ends.value:.3f} ({ends.low:.3f}-{ends.high:.3f})",
            f"{row['raw'].value:.3f}",
            f"{row['p10']:.2f}",
            f"{row['near']:.0%}",
            f"{row['trialsToNear'][0]:g}",
            f"{row['msPerTrial']:.0f}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
