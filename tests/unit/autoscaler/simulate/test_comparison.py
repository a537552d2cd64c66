"""What each policy did, in columns."""

from itertools import pairwise

import numpy as np
import pytest

from autoscaler.simulate import comparison
from autoscaler.simulate.comparison import Contender
from autoscaler.simulate.workloads.service import ServiceOptions, service
from autoscaler.simulate.workloads.traces import BinTrace
from tests.objects import simulations


@pytest.fixture(scope="module")
def outcome() -> comparison.Outcome:
    simulated = service("burst", simulations.trace(), ServiceOptions(rate=10, concurrency=20), 0)
    startup = comparison.startup_of("30")
    oracle, limit = comparison.yardstick(simulated.workload, startup, None)
    return comparison.play(simulated.workload, startup, Contender("hpa"), oracle=oracle, limit=limit, seed=0)


def test_columns_have_all_late_requests() -> None:
    simulated = service("burst", simulations.trace(), ServiceOptions(rate=10, concurrency=20), 0)
    startup = comparison.startup_of("30")
    oracle, _ = comparison.yardstick(simulated.workload, startup, None)
    played = comparison.play(simulated.workload, startup, Contender("static"), oracle=oracle, limit=3, seed=0)
    lead = -(-simulated.workload.lead // comparison.width(simulated.workload))
    late = sum(column.late for column in played.columns[lead:])
    assert late == pytest.approx(played.scores.violations / 100 * played.scores.requests)
    assert late > 0


@pytest.mark.parametrize("rate", [0.2, 100.0])
def test_dropped_requests_are_violations_when_service_takes_longer_than_the_timeout(rate: float) -> None:
    trace = BinTrace("overload.csv", 0.0, 60.0, np.full(180, rate))
    options = ServiceOptions(rate=rate / 2, concurrency=int(200 * rate), max_replicas=1)
    simulated = service("overload", trace, options, 0)
    startup = comparison.startup_of("30")
    oracle, _ = comparison.yardstick(simulated.workload, startup, 1)
    played = comparison.play(simulated.workload, startup, Contender("static"), oracle=oracle, limit=1, seed=0)
    assert played.scores.p50 > 295
    assert played.scores.violations > 40


def test_changes_lead_from_one_count_to_the_next(outcome: comparison.Outcome) -> None:
    counts = [(change.before, change.after) for change in outcome.changes]
    assert counts
    assert all(earlier[1] == later[0] for earlier, later in pairwise(counts))
    assert all(change.reason for change in outcome.changes)


def test_column_shows_its_highest_desired_count(outcome: comparison.Outcome) -> None:
    most = max(change.after for change in outcome.changes)
    assert max(column.desired for column in outcome.columns) == most


def test_load_of_the_columns_is_that_of_the_trace() -> None:
    workload = service("burst", simulations.trace(), ServiceOptions(), 0).workload
    load, step = comparison.load_of(workload), comparison.width(workload)
    assert load.sum() * step == pytest.approx(workload.load.per_second(workload.seconds).work.sum())
    assert load[700 // step] == pytest.approx(100, rel=0.5)


def test_timelines_have_no_more_columns_than_a_screen_when_the_run_is_long() -> None:
    workload = service("x", simulations.trace(), ServiceOptions(), 0).workload
    assert len(comparison.load_of(workload)) <= comparison.COLUMNS


@pytest.mark.parametrize("name", ["-1", "inf", "nan", "soon", ""])
def test_invalid_startup_times_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}$|could not convert"):
        comparison.startup_of(name)


def test_every_named_policy_can_be_built() -> None:
    assert comparison.names()[0] == "slipway"
    assert set(comparison.DEFAULT) < set(comparison.names())
    for name in comparison.names():
        assert Contender(name).build()
