from dataclasses import replace

import numpy as np
import pytest

from autoscaler.simulate.workloads.load import Flow, Requests
from autoscaler.simulate.workloads.scenarios import cuts, recipes
from autoscaler.simulate.workloads.traces import BinTrace, ClientTrace, Law, RequestTrace

DAY = 86_400


def bins(days: float, rate: float = 20, step: float = 600) -> BinTrace:
    return BinTrace("x", 0.0, step, np.full(int(days * DAY / step), float(rate)))


@pytest.mark.parametrize(
    ("days", "history", "scored"), [(0.04, 0, 0.04), (1, 0.25, 0.75), (8, 2, 6), (14, 7, 7), (23, 7, 14)]
)
def test_a_trace_is_cut_by_its_length(days: float, history: float, scored: float) -> None:
    (cut,) = cuts(days * DAY, 14, 0)
    assert (cut.history_seconds, cut.seconds) == pytest.approx((history * DAY, scored * DAY), abs=1)


def test_a_long_trace_is_scored_in_its_middle_and_where_it_is_busiest() -> None:
    middle, busiest = cuts(87 * DAY, 14, 73 * DAY)
    assert middle.start == 43.5 * DAY
    assert busiest.start < 73 * DAY < busiest.start + busiest.seconds <= 87 * DAY
    assert middle.history_start == middle.start - 14 * DAY


def test_replicas_are_so_large_that_fifteen_are_needed() -> None:
    (recipe,) = recipes({"x": bins(14)})
    workload = recipe.workload(1)
    assert workload.pure_work() / (workload.seconds - workload.lead) == pytest.approx(15, rel=0.02)
    assert isinstance(workload.load, Flow)
    assert "smooth" in recipe.tags
    assert workload.history.end == workload.start


def test_few_requests_in_bins_stand_for_one_of_many() -> None:
    (recipe,) = recipes({"x": bins(1, rate=0.5)})
    load = recipe.workload(1).load
    assert isinstance(load, Requests)
    assert len(load.times) / (0.75 * DAY) == pytest.approx(10, rel=0.02)


def test_the_history_continues_into_the_run() -> None:
    rates = np.linspace(10, 30, 14 * 144)
    (recipe,) = recipes({"x": BinTrace("x", 0.0, 600.0, rates)})
    workload = recipe.workload(1)
    assert isinstance(workload.load, Flow)
    assert len(workload.history.arrivals) == 7 * 1440
    assert workload.history.arrivals[-60:].mean() / 60 == pytest.approx(20, rel=0.02)
    assert workload.load.arrivals[:3600].mean() == pytest.approx(20, rel=0.02)


def test_requests_with_tokens_are_served_by_their_work() -> None:
    draws = np.random.default_rng(0)
    times = np.sort(draws.uniform(0, 3600, 5000))
    sizes = draws.uniform(100, 1000, 5000)
    (recipe,) = recipes({"x": RequestTrace("x", 0.0, times, inputs=sizes, outputs=sizes)})
    workload = recipe.workload(1)
    assert isinstance(workload.load, Requests)
    assert workload.load.work[:100].tolist() == pytest.approx((5 * sizes[:100]).tolist())
    assert workload.load.service.sum() / 3600 / workload.replica.concurrency == pytest.approx(15, rel=0.02)


def test_requests_with_gpu_seconds_have_replicas_of_one_slot_and_may_be_at_zero() -> None:
    times = np.arange(0, 8 * DAY, 600.0)
    (recipe,) = recipes({"x": RequestTrace("x", 0.0, times, execution=np.full(len(times), 40.0))})
    workload = recipe.workload(1)
    assert (workload.replica.concurrency, workload.wait, workload.min_replicas) == (1, 30, 0)
    assert workload.limit() == 3


def test_sparse_clients_are_services_of_their_own() -> None:
    def laws(rate: float) -> tuple[Law, ...]:
        return tuple(Law(start, 600, rate, "G", 0.5) for start in range(0, DAY, 600))

    trace = ClientTrace("x", 0.0, DAY, {"busy": laws(1.0), "sparse": laws(0.01), "dead": laws(0.0)})
    (recipe,) = recipes({"x": trace})
    assert recipe.name == "x client sparse"
    workload = recipe.workload(1)
    assert isinstance(workload.load, Requests)
    assert len(workload.load.times) == pytest.approx(0.01 * 0.75 * DAY, abs=1)
    assert workload.min_replicas == 0
    assert 3 <= workload.limit() <= 15


def test_bins_have_the_arrivals_of_their_clients() -> None:
    clients = ClientTrace(
        "c", 0.0, DAY, {"a": tuple(Law(at, 600, 100, "G", 0.02) for at in range(0, DAY, 600))}
    )
    bursty, even = (
        recipes(traces)[0].workload(1).oracle(0).need
        for traces in ({"x": bins(1, 100), "c": clients}, {"x": bins(1, 100)})
    )
    assert bursty.max() > 1.5 * even.max()


def test_policies_get_a_straight_line_when_the_recipe_has_lost_a_span_of_the_history() -> None:
    (recipe,) = recipes({"x": bins(14)})
    workload = replace(recipe, lost_history=(DAY, 2 * DAY), outages=((60.0, 120.0),)).workload(1)
    bends = np.abs(np.diff(workload.history.arrivals, 2))
    assert bends[1440 : 2 * 1440 - 2].max() == pytest.approx(0, abs=1e-6)
    assert workload.outages == ((60.0, 120.0),)


def test_every_seed_has_arrivals_of_its_own() -> None:
    (recipe,) = recipes({"x": bins(14)})
    first, again, other = (recipe.workload(seed).load.per_second(600).arrivals for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
