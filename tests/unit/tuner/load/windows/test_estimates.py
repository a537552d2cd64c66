"""Intervals of independent samples, and of correlated ones."""

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
    """Times in a stationary M/M/1 queue of service rate 1 (Lindley's recursion), exponential of 1 - load."""
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
        estimate = estimates.percentile(values, percent, longest=NEVER)
        assert estimate.low <= estimate.value <= estimate.high
        hits += estimate.low <= truth <= estimate.high
    return hits / RUNS


@pytest.mark.parametrize("percent", [50, 90, 99])
def test_95_percent_of_intervals_have_the_percentile_of_independent_requests(percent: float) -> None:
    assert covered(0, 1000, percent) >= 0.93


@pytest.mark.parametrize(("load", "percent"), [(0.3, 50), (0.3, 99), (0.5, 90), (0.7, 50), (0.7, 99)])
def test_95_percent_of_intervals_have_the_percentile_of_queued_requests(load: float, percent: float) -> None:
    """Without the correction for correlation, only 40 % have the p50 at a load of 0.7."""
    assert covered(load, 2000, percent) >= 0.92


def test_intervals_of_independent_requests_are_nearly_exact() -> None:
    draw = np.random.default_rng(3)
    widths, least = [], []
    for _ in range(50):
        values = draw.exponential(1.0, 4000)
        estimate = estimates.percentile(values, 90, longest=NEVER)
        ordered = np.sort(values)
        low, high = stats.binom.ppf([0.025, 0.975], 4000, 0.9).astype(int)
        widths.append(estimate.high - estimate.low)
        least.append(ordered[high] - ordered[low - 1])
    assert np.median(widths) < 1.3 * np.median(least)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.sampled_from([1, 50, 90, 99]))
def test_interval_is_that_of_order_statistics_for_few_values(values: list[float], percent: int) -> None:
    estimate = estimates.percentile(np.array(values), percent, longest=NEVER)
    ordered = sorted(values)
    assert estimate.value == ordered[math.ceil(len(values) * percent / 100) - 1]
    low, high = stats.binom.ppf([0.025, 0.975], len(values), percent / 100).astype(int)
    assert estimate.low <= (ordered[low - 1] if low else 0)
    assert estimate.high >= (ordered[high] if high < len(values) else NEVER)


def test_p99_of_hundred_requests_has_no_upper_end() -> None:
    estimate = estimates.percentile(np.linspace(0.1, 0.2, 100), 99, longest=30.0)
    assert estimate.high == 30.0
    assert estimate.low > 0.15


@pytest.mark.parametrize("count", [100, 300])
def test_unmeasured_tail_ends_as_an_exponential_one(count: int) -> None:
    draw = np.random.default_rng(2)
    truth = math.log(100)
    ends = np.array(
        [estimates.tail_end(draw.exponential(1.0, count), 99, longest=NEVER) for _ in range(RUNS)]
    )
    assert (ends >= truth).mean() >= 0.95
    assert np.median(ends) < 2 * truth
    assert estimates.tail_end(draw.exponential(1.0, 5), 99, longest=30.0) == 30.0
    assert estimates.tail_end(draw.exponential(1.0, 500), 50, longest=30.0) == 30.0


def test_values_beyond_all_others_move_the_percentile() -> None:
    values = np.linspace(0, 1, 1000)
    assert estimates.percentile(values, 90, longest=30.0).value == pytest.approx(0.9, abs=0.01)
    assert estimates.percentile(values, 90, censored=200, longest=30.0).value == 30.0


def test_interval_is_unbounded_without_values() -> None:
    estimate = estimates.percentile(np.empty(0), 99, longest=30.0)
    assert (estimate.low, estimate.high) == (0.0, 30.0)
    assert estimates.share(np.empty(0)).high == 1.0
    assert all(estimates.share(np.zeros(count)).low == 0.0 for count in range(1, 3000))
    assert all(estimates.share(np.ones(count)).high == 1.0 for count in range(1, 3000))


@given(st.integers(0, 200), st.integers(1, 200))
def test_share_has_wilsons_interval_for_independent_requests(ones: int, zeros: int) -> None:
    """The order is random, as a run of ones is correlated."""
    count = ones + zeros
    values = np.zeros(count)
    values[np.random.default_rng(ones).permutation(count)[:ones]] = 1
    estimate = estimates.share(values)
    wilson = stats.binomtest(ones, count).proportion_ci(method="wilson")
    assert estimate.value == ones / count
    assert estimate.low <= wilson.low + 1e-6
    assert estimate.high >= wilson.high - 1e-6


def test_interval_of_failures_in_one_run_is_wider_than_of_scattered_ones() -> None:
    run, scattered = np.zeros(2000), np.zeros(2000)
    run[900:1000] = 1
    scattered[np.random.default_rng(1).permutation(2000)[:100]] = 1
    wide, narrow = estimates.share(run), estimates.share(scattered)
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_95_percent_of_intervals_have_the_mean_of_correlated_counts() -> None:
    """Autoregression of 0.6: the mean's variance is four times that of independent values."""
    draw = np.random.default_rng(5)
    hits = 0
    for _ in range(RUNS):
        noise, values = draw.normal(size=128), np.empty(128)
        values[0] = noise[0] / 0.8
        for n in range(1, 128):
            values[n] = 0.6 * values[n - 1] + noise[n]
        estimate = estimates.mean(values + 20)
        hits += estimate.low <= 20 <= estimate.high
    assert hits / RUNS >= 0.92
