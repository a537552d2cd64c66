"""Scaling policies on recorded load, in simulation: late requests against cost.

The load is every trace of --traces, recognised by its columns, and synthetic services: a step, a ramp, a
clock change, a holiday, lost data, bursts, and rare requests for images. Slipway runs with one configuration
on all of them; --policies also takes other risks (`slipway risk=1`). All policies get the same load, start-up
times, late and lost readings, and the same knowledge: the capacity of a replica, the bounds, and the days
before.

`violations` are percent of requests that wait longer than their own service time and longer than two seconds
(30 s for images). `overOracle` are replica-hours, starting replicas included, over those of a policy that
knows the future and orders a start-up time ahead. docs/autoscaling.md explains the rest;
autoscaler/simulate/ has the simulator. All runs take two hours on two cores: `--resume DIR` goes on where an
interrupted benchmark of the same plan and the same policies ended.
"""

import argparse
import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # small arrays; the other cores have runs of their own

from rich.console import Console  # noqa: E402
from rich.progress import track  # noqa: E402
from rich.table import Table  # noqa: E402
from rig.harness import DATA, machine, report  # noqa: E402
from rig.scaling import policies, runs, scores  # noqa: E402
from rig.scaling.finished_runs import FinishedRuns  # noqa: E402
from rig.scaling.runs import Plan, Row  # noqa: E402

STARTUPS = ("5", "30", "60", "120", "300")
QUICK_STARTUPS = ("60",)
QUICK_DAYS = 1 / 12
QUICK_CLIENTS = 2
QUICK_SKIPPED = ("ramp", "daylight saving", "holiday", "lost data", "bursts")


def main() -> None:
    options = _options()
    console = Console(stderr=True, width=180)
    plan = Plan(
        directory=options.traces,
        startups=QUICK_STARTUPS if options.quick else tuple(options.startup),
        policies=tuple(options.policies or _default_policies(options.quick)),
        days=QUICK_DAYS if options.quick else options.days,
        clients=QUICK_CLIENTS if options.quick else options.clients,
        only=options.only,
        history=not options.no_history,
        lean=not options.quick,
        skipped=QUICK_SKIPPED if options.quick else (),
    )
    unknown = set(plan.policies) - set(policies.registry())
    if unknown:
        raise SystemExit(
            f"--policies: {', '.join(sorted(unknown))}; known are {', '.join(policies.registry())}"
        )
    seeds = 1 if options.quick else options.seeds
    services = runs.services(plan)
    if not services:
        raise SystemExit(
            f"--only, --startup: no service with {plan.only!r} in its name has these start-up times"
        )
    finished = FinishedRuns.of(options.resume, plan) if options.resume else None
    rows = _played(plan, len(services), seeds, options.jobs, finished, console)
    _print(console, rows)
    figures, bars = scores.bars(rows)
    for bar in bars:
        console.print(
            f"{'met   ' if bar.met else 'MISSED'} {bar.what}: {bar.value:.4g} (bar {bar.bar:g})",
            highlight=False,
        )
    results = {
        "services": len(services),
        "seeds": seeds,
        "scoredDays": plan.days,
        "history": plan.history,
        "means": scores.means(rows),
        **figures,
        "byService": scores.figures(rows),
    }
    if options.out:
        line = {
            "benchmark": "autoscaler",
            "machine": machine(),
            "results": results,
            "bars": [asdict(bar) for bar in bars],
        }
        options.out.write_text(json.dumps(line, default=asdict, indent=1) + "\n")
    report("autoscaler", results, bars)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--traces", type=Path, default=DATA / "traces", help="directory of traces: .csv, .csv.gz"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--startup",
        nargs="+",
        default=STARTUPS,
        help="seconds that starts take, or `fleet` for what a fleet measured",
    )
    parser.add_argument("--policies", nargs="+", help="names; default: all")
    parser.add_argument("--only", default="", help="part of the names of the services that are run")
    parser.add_argument("--days", type=float, default=7, help="scored days of a trace, at most")
    parser.add_argument(
        "--clients", type=int, default=12, help="sparse clients of each trace of clients, at most"
    )
    parser.add_argument("--no-history", action="store_true", help="policies know nothing of the days before")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="DIR",
        help="keep the runs that have finished in this directory, and do not repeat those in it",
    )
    parser.add_argument(
        "--quick", action="store_true", help="one seed and start-up time of some hours of each"
    )
    return parser.parse_args()


def _default_policies(quick: bool) -> Sequence[str]:  # noqa: FBT001 - from options
    every = list(policies.registry())
    return [name for name in every if name not in policies.swept()] if quick else every


def _played(
    plan: Plan, services: int, seeds: int, jobs: int, finished: FinishedRuns | None, console: Console
) -> list[Row]:
    """Run the services; where there is no terminal for a progress bar, print a line for each that ended."""
    todo = [(service, seed) for service in range(services) for seed in range(seeds)]
    rows: list[Row] = []
    if finished is not None:
        rows = [row for run in todo for row in finished.rows(*run)]
        todo = [run for run in todo if not finished.rows(*run)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(runs.play, plan, *run): run for run in todo}
        ended = track(as_completed(futures), description="services", total=len(futures), console=console)
        for count, future in enumerate(ended, start=1):
            played = future.result()
            rows += played
            if finished is not None:
                finished.keep(*futures[future], played)
            if not console.is_terminal:
                console.print(f"{count} of {len(futures)}: {played[0].service}, seed {played[0].seed}")
    return sorted(rows, key=lambda row: (row.service, row.startup, row.seed))


def _print(console: Console, rows: Sequence[Row]) -> None:
    """Print violations and cost of each policy: a table per service, and one of the means."""
    startups = list(
        dict.fromkeys(row.startup for row in sorted(rows, key=lambda row: (len(row.startup), row.startup)))
    )
    policies = list(dict.fromkeys(row.policy for row in rows))
    places = dict.fromkeys(row.service for row in rows)
    for place in [*places, None]:
        chosen = [row for row in rows if place in (None, row.service)]
        means = scores.means(chosen)
        table = Table(
            title=f"{place or 'all services, means'}: % late / replica-hours over perfect knowledge"
            " / % cold / actions an hour"
        )
        table.add_column("policy", no_wrap=True)
        for startup in startups:
            table.add_column(f"start {startup}", justify="right", no_wrap=True)
        for policy in policies:
            table.add_row(policy, *(_cell(means.get(startup, {}).get(policy)) for startup in startups))
        console.print(table)


def _cell(figures: dict[str, float] | None) -> str:
    if figures is None:
        return ""
    late, over, cold, actions = (figures[key] for key in ("violations", "overOracle", "cold", "actions"))
    return f"{late:.2f} / {over:.2f} / {cold:.2f} / {actions:.1f}"


if __name__ == "__main__":
    main()
