"""Intervals: right where samples are independent, wide enough where they depend on each other."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tuner.load.windows import estimates
from tuner.load.windows.samples import Floats

RUNS = 200
NEVER = 1e9


def waiting(draw: np.random.Generator, load: float, count: int) -> Floats:
    """Times in a stationary M/M/1 queue of service rate 1 (Lindley's recursion): they are exponential of rate 1 - load."""
    arrivals, services = draw.exponential(1 / load, count), draw.exponential(1.0, count)
    first = draw.exponential(1 / (1 - load)) if draw.random() < load else 0.0
    walk = np.concatenate([[0.0], np.cumsum(services - arrivals)[:-1]])
    return services + np.maximum(first + walk, walk - np.minimum.accumulate(walk))


def covered(load: float, count: int, percent: float) -> float:
    draw = np.random.default_rng(7)
    truth = -math.log(1 - percent / 100) / (1 - load)
    hits = 0
    for _ in range(RUNS):
        values = waiting(draw, load, count) if load else draw.exponential(1.0, count)
        found = estimates.percentile(values, percent, longest=NEVER)
        assert found.low <= found.value <= found.high
        hits += found.low <= truth <= found.high
    return hits / RUNS


@pytest.mark.parametrize("percent", [50, 90, 99])
def test_95_percent_of_intervals_have_the_percentile_where_requests_are_independent(percent: float) -> None:
    assert covered(0, 1000, percent) >= 0.93


@pytest.mark.parametrize(("load", "percent"), [(0.3, 50), (0.3, 99), (0.5, 90), (0.7, 50), (0.7, 99)])
def test_95_percent_of_intervals_have_the_percentile_where_requests_queue(
    load: float, percent: float
) -> None:
    """Without what widens them, p50 at a load of 0.7 has 40 %."""
    assert covered(load, 2000, percent) >= 0.92


def test_intervals_of_independent_requests_are_hardly_wider_than_they_must_be() -> None:
    draw = np.random.default_rng(3)
    widths, least = [], []
    for _ in range(50):
        values = draw.exponential(1.0, 4000)
        found = estimates.percentile(values, 90, longest=NEVER)
        ordered = np.sort(values)
        low, high = stats.binom.ppf([0.025, 0.975], 4000, 0.9).astype(int)
        widths.append(found.high - found.low)
        least.append(ordered[high] - ordered[low - 1])
    assert np.median(widths) < 1.3 * np.median(least)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.sampled_from([1, 50, 90, 99]))
def test_few_values_bound_a_percentile_as_order_statistics_do(values: list[float], percent: int) -> None:
    found = estimates.percentile(np.array(values), percent, longest=NEVER)
    ordered = sorted(values)
    assert found.value == ordered[math.ceil(len(values) * percent / 100) - 1]
    low, high = stats.binom.ppf([0.025, 0.975], len(values), percent / 100).astype(int)
    assert found.low <= (ordered[low - 1] if low else 0)
    assert found.high >= (ordered[high] if high < len(values) else NEVER)


def test_a_p99_of_hundred_requests_has_no_upper_end() -> None:
    found = estimates.percentile(np.linspace(0.1, 0.2, 100), 99, longest=30.0)
    assert found.high == 30.0
    assert found.low > 0.15


@pytest.mark.parametrize("count", [100, 300])
def test_a_tail_that_is_not_seen_ends_where_an_exponential_one_would(count: int) -> None:
    draw = np.random.default_rng(2)
    truth = math.log(100)
    ends = np.array(
        [estimates.tail_end(draw.exponential(1.0, count), 99, longest=NEVER) for _ in range(RUNS)]
    )
    assert (ends >= truth).mean() >= 0.95
    assert np.median(ends) < 2 * truth
    assert estimates.tail_end(draw.exponential(1.0, 5), 99, longest=30.0) == 30.0
    assert estimates.tail_end(draw.exponential(1.0, 500), 50, longest=30.0) == 30.0


def test_requests_beyond_all_others_move_the_percentile() -> None:
    values = np.linspace(0, 1, 1000)
    assert estimates.percentile(values, 90, longest=30.0).value == pytest.approx(0.9, abs=0.01)
    assert estimates.percentile(values, 90, beyond=200, longest=30.0).value == 30.0


def test_no_values_are_no_knowledge() -> None:
    found = estimates.percentile(np.empty(0), 99, longest=30.0)
    assert (found.low, found.high) == (0.0, 30.0)
    assert estimates.share(np.empty(0)).high == 1.0
    assert all(estimates.share(np.zeros(count)).low == 0.0 for count in range(1, 3000))
    assert all(estimates.share(np.ones(count)).high == 1.0 for count in range(1, 3000))


@given(st.integers(0, 200), st.integers(1, 200))
def test_a_share_has_wilsons_interval_where_requests_are_independent(ones: int, zeros: int) -> None:
    """Few or alternating ones: the correlation that a run of ones shows is another matter."""
    count = ones + zeros
    values = np.zeros(count)
    values[np.random.default_rng(ones).permutation(count)[:ones]] = 1
    found = estimates.share(values)
    wilson = stats.binomtest(ones, count).proportion_ci(method="wilson")
    assert found.value == ones / count
    assert found.low <= wilson.low + 1e-6
    assert found.high >= wilson.high - 1e-6


def test_failures_in_one_run_are_known_less_well_than_scattered_ones() -> None:
    run, scattered = np.zeros(2000), np.zeros(2000)
    run[900:1000] = 1
    scattered[np.random.default_rng(1).permutation(2000)[:100]] = 1
    wide, narrow = estimates.share(run), estimates.share(scattered)
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_95_percent_of_intervals_have_the_mean_of_correlated_counts() -> None:
    """A first-order autoregression of 0.6, whose mean's variance is four times that of independent values."""
    draw = np.random.default_rng(5)
    hits = 0
    for _ in range(RUNS):
        noise, values = draw.normal(size=128), np.empty(128)
        values[0] = noise[0] / 0.8
        for n in range(1, 128):
            values[n] = 0.6 * values[n - 1] + noise[n]
        found = estimates.mean(values + 20)
        hits += found.low <= 20 <= found.high
    assert hits / RUNS >= 0.92
