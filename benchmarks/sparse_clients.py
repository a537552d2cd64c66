"""The effect of keep-alive for clients that are silent for hours: cold requests against replica-hours.

For a sample of clients with few requests of each trace of --traces, with a start-up time of 60 s, a replica
is kept for some time after each request. Two curves: the same time for all clients, and the best time for
each client, chosen with knowledge of the future. No policy that only keeps replicas is better than the second
curve. The bar: 0.3 % of cold requests at fewer hours than Knative with 15 minutes. One replica is assumed to
be enough, so hours are too few for clients with bursts.
"""

import argparse
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from rig.harness import DATA, Bar, report
from rig.scaling import runs

from autoscaler.simulate.workloads import scenarios
from autoscaler.simulate.workloads.load import Floats, Requests

STARTUP = 66.0
"""Seconds: the 90 % quantile of starts of a minute, give or take a tenth."""
MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 960, 1920, 4000, 20_000)
"""Seconds for which a replica is kept; the last is for ever."""
RETENTION = 15
"""Minutes of Knative's retention in the bar."""
PRICES = (1, 2, 3, 5, 10, 15, 20, 30, 50, 100, 200, 400)
"""Cold requests that equal an hour of a replica: each is a point of the second curve."""
COLD = 0.3


@dataclass(frozen=True)
class KeepAlivePoint:
    """Sums over all clients."""

    cold: float
    """Percent of the requests."""
    hours: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--traces", type=Path, default=DATA / "traces", help="directory of traces: .csv, .csv.gz"
    )
    parser.add_argument("--clients", type=int, default=12, help="of each trace of clients, at most")
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="two clients of each trace, one day")
    options = parser.parse_args()
    days, clients = (1.0, 2) if options.quick else (options.days, options.clients)
    recipes = scenarios.recipes(runs.recorded(options.traces), days=days, clients=clients)
    arrivals = [
        _arrivals(recipe.workload(options.seed).load, recipe.cut.seconds)
        for recipe in recipes
        if "client" in recipe.tags
    ]
    requests = sum(len(times) - 1 for times in arrivals)
    kept = [[_kept(times, 60.0 * minutes) for minutes in MINUTES] for times in arrivals]
    same = {minutes: _sum([row[i] for row in kept], requests) for i, minutes in enumerate(MINUTES)}
    best = [
        _sum([min(row, key=lambda each: each[0] + price * each[1]) for row in kept], requests)
        for price in PRICES
    ]
    afforded = [point.cold for point in best if point.hours <= same[RETENTION].hours]
    reached = min(afforded, default=100.0)
    results = {
        "clients": len(arrivals),
        "requests": requests,
        "sameTime": {str(minutes): vars(point) for minutes, point in same.items()},
        "bestTimes": [vars(point) for point in best],
    }
    report(
        "sparse_clients",
        results,
        [Bar("% cold at the hours of 15 minutes, times chosen in hindsight", reached, COLD, reached <= COLD)],
    )


def _arrivals(load: object, seconds: float) -> Floats:
    """Return the arrivals, and the end of the run."""
    assert isinstance(load, Requests)
    return np.append(load.times, seconds)


def _kept(times: Floats, seconds: float) -> tuple[float, float]:
    """Return the cold requests, and the hours, if a replica is kept for `seconds` after each request."""
    cold = hours = 0.0
    before = -np.inf
    for time, after in pairwise(times.tolist()):
        if time - before > seconds:
            cold += float(np.searchsorted(times, time + STARTUP) - np.searchsorted(times, time))
            hours += STARTUP / 3600
        hours += min(after - time, seconds) / 3600
        before = time
    return cold, hours


def _sum(points: list[tuple[float, float]], requests: int) -> KeepAlivePoint:
    cold, hours = (sum(values) for values in zip(*points, strict=True))
    return KeepAlivePoint(round(100 * cold / max(requests, 1), 3), round(hours, 1))


if __name__ == "__main__":
    main()
