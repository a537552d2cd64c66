"""A small simulation for tests of the report: twenty minutes with a burst, under three policies."""

import datetime as dt
from functools import cache

from autoscaler.report import content
from autoscaler.report.schema import SimulationReport
from autoscaler.simulate import comparison
from autoscaler.simulate.comparison import Contender
from autoscaler.simulate.workloads.service import ServiceOptions, service
from autoscaler.simulate.workloads.traces import BinTrace, parse

NOW = dt.datetime(2026, 11, 22, 5, 0, tzinfo=dt.UTC)
CONTENDERS = (Contender("slipway"), Contender("slipway", 5.0), Contender("hpa"), Contender("static"))
RATE = 10.0
"""Requests per second of one replica."""


def trace() -> BinTrace:
    """Return 20 requests per second, and five times as many from the tenth minute to the thirteenth."""
    rows = [f"{second},{1000 if 600 <= second < 780 else 200}" for second in range(0, 1200, 10)]
    parsed = parse("burst.csv", "\n".join(["second,requests", *rows]) + "\n")
    assert isinstance(parsed, BinTrace)
    return parsed


@cache
def report(name: str = "burst") -> SimulationReport:
    simulated = service(name, trace(), ServiceOptions(rate=RATE, concurrency=20), 0)
    startup = comparison.startup_of("30")
    oracle, limit = comparison.yardstick(simulated.workload, startup, None)
    outcomes = [
        comparison.play(simulated.workload, startup, contender, oracle=oracle, limit=limit, seed=0)
        for contender in CONTENDERS
    ]
    return content.of(
        simulated, outcomes, oracle=oracle, startup="30", limit=limit, seed=0, now=NOW, version="slipway test"
    )
