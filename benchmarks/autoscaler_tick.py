"""CPU time of one autoscaler tick for 1,000 services, and their memory.

A tick reads one gateway's metrics page, adds up the counts, and decides on every service. Each service has
two weeks of load, a regression, and requests at each tick. That is the most expensive case: a service without
requests is decided on once a minute. Writing the page is not timed. Socket reads and API writes are measured
by controllers.py.
"""

import argparse
import math
import os
import random
import statistics
import time
from collections.abc import Sequence

from rig.harness import Bar, report, resident_mib

from autoscaler.forecast.fit import RECENT, SEASONAL, Fit
from autoscaler.forecast.history import MOST_BINS
from autoscaler.forecast.profile import BIN
from autoscaler.observation import Capacity, Observation, Replicas
from autoscaler.policy.config import PolicyConfig
from autoscaler.policy.sizer import TICK_SECONDS
from autoscaler.signals.board import Board, Reading
from autoscaler.signals.exposition import Parser, ScaleTargetName
from autoscaler.state.target_state import TargetState
from serving.resources.metric_names import (
    ANSWERED,
    DURATION,
    GATEWAY,
    IN_FLIGHT,
    READ_AT,
    RECEIVED,
    STARTED_AT,
)
from serving.router.envoy.counts.count_table import BOUNDS_MS

SERVICES = 1_000
QUICK_SERVICES = 200
TICKS = 60
START = 1_763_000_000.0
BAR_MILLISECONDS = 5.0
"""For one service, signals included."""
BAR_MIB = 300.0
"""Of the process, for all services."""
RATE = 10.0
"""Requests per second of one replica."""


class GatewayPage:
    """The page of a gateway whose services have random requests."""

    def __init__(self, targets: Sequence[ScaleTargetName]) -> None:
        self._targets = targets
        self._random = random.Random(1)
        self._rates = [self._random.uniform(1, 100) for _ in targets]
        self._counts = [0] * len(targets)

    def text(self, now: float) -> str:
        """Return the page after another tick."""
        lines = [f"{STARTED_AT} {START - 60:.2f}", f"{READ_AT} {now:.3f}", f'{GATEWAY}{{gateway="local"}} 1']
        for i, target in enumerate(self._targets):
            self._counts[i] += round(self._random.gauss(1, 0.1) * self._rates[i] * TICK_SECONDS)
            count = self._counts[i]
            labels = (
                f'namespace="{target.namespace}",inference="s{i}",predictor="stable",revision="{target.name}"'
            )
            lines += [
                f"{RECEIVED}{{{labels}}} {count}",
                f'{ANSWERED}{{{labels},code_class="2xx"}} {count}',
                f"{IN_FLIGHT}{{{labels}}} {self._rates[i] * 0.1:.0f}",
                *(f'{DURATION}_bucket{{{labels},le="{bound / 1000:g}"}} {count}' for bound in BOUNDS_MS),
                f"{DURATION}_sum{{{labels}}} {count * 0.1:.3f}",
                f"{DURATION}_count{{{labels}}} {count}",
            ]
        return "\n".join(lines)


def seasoned(seed: int) -> TargetState:
    """Return a service with two weeks of load and a regression."""
    state = TargetState(PolicyConfig(min_replicas=0, max_replicas=50, capacity=Capacity(RATE, 1.0)))
    state.decide(Observation(START - 60, Replicas(1, 1), None))
    noise = random.Random(seed)
    sizer = state.sizer
    assert sizer is not None
    first = math.floor(START / BIN) - MOST_BINS
    for i in range(MOST_BINS):
        day = math.sin(2 * math.pi * i * BIN / 86_400)
        sizer.history.add(first + i, 3 + day + noise.gauss(0, 0.1))
    lags = RECENT + SEASONAL
    sizer.set_fit(Fit(0.01, lags, (0.9, *[0.1 / (len(lags) - 1)] * (len(lags) - 1)), 0.9, 0.9))
    return state


def measure(count: int) -> tuple[list[float], list[float], float]:
    """Return CPU seconds of the signals and of the decisions of each tick, and the MiB of the process."""
    targets = [ScaleTargetName("default", f"s{i}-stable-1") for i in range(count)]
    services = [seasoned(i) for i in range(count)]
    page, parser, board = GatewayPage(targets), Parser(), Board()
    known, live = frozenset(targets), frozenset(["local"])
    desired, signals, decisions = [5] * count, [], []
    for tick in range(TICKS + 1):
        now = START + tick * TICK_SECONDS
        text = page.text(now)
        began = time.process_time()
        scraped = parser.page(text)
        reading = Reading(scraped.gateway, scraped.read_at, scraped.started, scraped.counts)
        board.tick([reading], live, known, {}, now, unix_now=now)
        read = time.process_time()
        for i, target in enumerate(targets):
            observation = Observation(now, Replicas(desired[i], desired[i]), board.take(target))
            desired[i] = services[i].decide(observation).replicas
        decided = time.process_time()
        if tick:  # the first tick caches the series of the page
            signals.append(read - began)
            decisions.append(decided - read)
    assert statistics.fmean(desired) > 1, "no service was sized"
    return signals, decisions, resident_mib(os.getpid())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--services", type=int, default=SERVICES)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SERVICES} services")
    options = parser.parse_args()
    count = QUICK_SERVICES if options.quick else options.services
    signals, decisions, mib = measure(count)
    both = [1000 * (a + b) / count for a, b in zip(signals, decisions, strict=True)]
    slowest = max(both)
    print(
        f"{count} services, {TICKS} ticks, CPU of a tick for all: "
        f"signals {1000 * statistics.median(signals):.0f} ms, "
        f"decisions {1000 * statistics.median(decisions):.0f} ms; {mib:.0f} MiB"
    )
    results = {
        "services": count,
        "signalsMs": round(1000 * statistics.median(signals), 1),
        "decisionsMs": round(1000 * statistics.median(decisions), 1),
        "msPerService": round(statistics.median(both), 4),
        "slowestMsPerService": round(slowest, 4),
        "coreShare": round(count * statistics.median(both) / 1000 / TICK_SECONDS, 4),
        "residentMiB": mib,
    }
    bars = [
        Bar(
            "CPU ms of a tick for one service, the slowest tick",
            slowest,
            BAR_MILLISECONDS,
            slowest <= BAR_MILLISECONDS,
        ),
        Bar(f"MiB for {count} services", mib, BAR_MIB, mib <= BAR_MIB),
    ]
    report("autoscaler_tick", results, bars)


if __name__ == "__main__":
    main()
