import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.forecast.histogram import BINS, LIMIT, WIDTH, DecayedHistogram

SHARES = (0.05, 0.1, 0.5, 0.9, 0.99, 0.995)


def histogram_of(errors: list[float], *, memory: float = 1e9, prior: float = 1e-9) -> DecayedHistogram:
    histogram = DecayedHistogram(memory, prior)
    for error in errors:
        histogram.add(error)
    return histogram


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", SHARES)
def test_quantile_equals_numpys_within_a_bin_without_decay(seed: int, share: float) -> None:
    errors = np.random.default_rng(seed).normal(0.3, 1.2, 4001)
    expected = np.quantile(errors, share, method="inverted_cdf")
    assert abs(histogram_of(errors.tolist()).quantile(share) - expected) <= 1.5 * WIDTH


def test_quantiles_are_those_of_a_heavy_tail_without_observations() -> None:
    histogram = DecayedHistogram(100, 60)
    assert histogram.quantile(0.5) == pytest.approx(0, abs=WIDTH)
    assert histogram.quantile(0.995) == pytest.approx(math.log(100), abs=WIDTH)


def test_old_errors_are_forgotten_when_newer_ones_differ() -> None:
    histogram = histogram_of([-3.0] * 1000 + [2.0] * 500, memory=100)
    assert histogram.quantile(0.05) == pytest.approx(2, abs=WIDTH)


def test_integer_weight_counts_as_that_many_errors() -> None:
    single = histogram_of([0.0, 1.0, 1.0, 1.0])
    weighted = histogram_of([0.0])
    weighted.add(1.0, weight=3.0)
    assert weighted.quantile(0.3) == pytest.approx(single.quantile(0.3), abs=1e-6)


def test_quantiles_are_the_same_when_weights_were_rescaled() -> None:
    histogram = histogram_of([float(i % 5) for i in range(5000)], memory=10)  # e^500 would be beyond 1e100
    assert histogram.quantile(0.5) == pytest.approx(2, abs=1.2)
    assert all(math.isfinite(weight) for weight in histogram.state())


def test_restored_state_of_another_size_is_ignored() -> None:
    histogram = histogram_of([2.0] * 50)
    before = histogram.quantile(0.5)
    histogram.restore([1.0] * (BINS - 1))
    histogram.restore([0.0] * BINS)
    histogram.restore([math.nan] * BINS)
    assert histogram.quantile(0.5) == before


@settings(max_examples=30)
@given(st.lists(st.floats(), max_size=60), st.floats(1, 1e4), st.floats(0.001, 0.999))
def test_quantile_is_within_the_limits_for_any_errors(
    errors: list[float], memory: float, share: float
) -> None:
    histogram = histogram_of(errors, memory=memory, prior=1.0)
    assert -LIMIT <= histogram.quantile(share) <= LIMIT
    assert histogram.quantile(share) <= histogram.quantile(min(share + 0.0005, 1.0)) + 1e-9


@settings(max_examples=20)
@given(st.lists(st.floats(-20, 20), min_size=1, max_size=60))
def test_quantiles_are_the_same_when_restored_from_json(errors: list[float]) -> None:
    histogram, restored = histogram_of(errors, memory=50, prior=5.0), DecayedHistogram(50, 5.0)
    restored.restore(json.loads(json.dumps(histogram.state())))
    for share in SHARES:
        assert restored.quantile(share) == pytest.approx(histogram.quantile(share), abs=1e-6)
    restored.add(1.0)
    histogram.add(1.0)
    assert restored.quantile(0.7) == pytest.approx(histogram.quantile(0.7), abs=1e-6)


@settings(max_examples=30)
@given(
    st.lists(st.floats(-2, 2), min_size=1, max_size=60),
    st.floats(0.3, 3.0),
    st.floats(-1.5, 1.5),
    st.floats(0, 1),
)
def test_quantiles_follow_when_errors_are_mapped(
    errors: list[float], factor: float, offset: float, share: float
) -> None:
    mapped, expected = histogram_of(errors), histogram_of([factor * error + offset for error in errors])
    mapped.map(factor, offset)
    assert sum(mapped.state()) == pytest.approx(sum(expected.state()))
    near = [expected.quantile(min(max(share + d, 0.0), 1.0)) for d in (-1e-6, 1e-6)]
    margin = (2 + factor) * WIDTH
    assert near[0] - margin <= mapped.quantile(share) <= near[1] + margin


def test_errors_that_were_cut_stay_cut_when_errors_are_mapped() -> None:
    histogram = histogram_of([-math.inf] * 3 + [math.inf])
    histogram.map(1.0, 4.0)
    assert histogram.quantile(0.5) <= -LIMIT + WIDTH
    assert histogram.quantile(0.9) >= LIMIT - WIDTH
