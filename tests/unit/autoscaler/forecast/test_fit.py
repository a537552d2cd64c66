import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.forecast.fit import AHEAD, MOST_CHANGE, RECENT, STEPS, Fit, fit, path, rise
from autoscaler.forecast.history import DAY_BINS, MOST_BINS

DAYS = 7


def daily(bins: int, *, noise: float = 0.05, seed: int = 1) -> np.ndarray:
    """Return levels with the shape of a day, and an autoregression of one bin about it."""
    rng, rest = np.random.default_rng(seed), np.zeros(bins)
    for i in range(1, bins):
        rest[i] = 0.7 * rest[i - 1] + rng.normal(0, noise)
    return 3 + np.sin(np.arange(bins) * 2 * math.pi / DAY_BINS) + rest


@pytest.fixture(scope="module")
def fitted() -> Fit:
    model = fit(daily(DAYS * DAY_BINS))
    assert model is not None
    return model


def test_autoregression_is_recovered_when_load_has_no_season() -> None:
    rng, levels = np.random.default_rng(2), [0.0, 0.0]
    for _ in range(2000):
        levels.append(1.0 + 0.6 * levels[-1] + 0.2 * levels[-2] + rng.normal(0, 0.1))
    model = fit(levels)
    assert model is not None
    assert model.coefficients[:2] == pytest.approx((0.6, 0.2), abs=0.06)
    assert model.lags == RECENT, "a season without strength has no lags"
    assert model.daily < 0.1


def test_shape_of_a_day_is_recovered_from_several_days(fitted: Fit) -> None:
    assert fitted.daily > 0.9
    assert {DAY_BINS, 2 * DAY_BINS} < set(fitted.lags)
    levels = daily(DAYS * DAY_BINS)
    errors, naive = [], []
    for now in range(5 * DAY_BINS, 6 * DAY_BINS, 7):
        then = path(fitted, levels[: now + 1].tolist())[3]
        errors.append(abs(then - levels[now + 3]))
        naive.append(abs(levels[now] - levels[now + 3]))
    assert np.mean(errors) < 0.8 * np.mean(naive)


def test_a_path_begins_with_the_last_level_when_it_is_known(fitted: Fit) -> None:
    levels = daily(3 * DAY_BINS).tolist()
    values = path(fitted, levels)
    assert len(values) == STEPS + 1
    assert values[0] == levels[-1]
    assert path(fitted, levels[: DAY_BINS + 1]) == ()
    assert math.isnan(rise(fitted, levels[:12]))


@pytest.mark.parametrize(
    "levels",
    [
        [],
        [1.0] * 71,
        [2.5] * 4000,
        [1.0, math.nan] * 200,
        [1.0, math.inf] * 200,
        [*([3.0] * 500), 3.01, *([3.0] * 500)],
    ],
    ids=["none", "short", "constant", "nan", "infinite", "nearly constant"],
)
def test_there_is_no_fit_when_levels_do_not_determine_it(levels: list[float]) -> None:
    assert fit(levels) is None


def test_a_flash_crowd_changes_little_when_it_is_one_of_many_days(fitted: Fit) -> None:
    levels = daily(DAYS * DAY_BINS)
    levels[5 * DAY_BINS : 5 * DAY_BINS + 12] += 4.0
    crowded = fit(levels)
    assert crowded is not None
    before = daily(7 * DAY_BINS + 60).tolist()
    assert path(crowded, before) == pytest.approx(path(fitted, before), abs=0.1)


@settings(max_examples=25)
@given(
    levels=st.lists(
        st.sampled_from((-9.0, 0.0, 0.1, 3.0, 20.0)) | st.floats(-30, 30), min_size=72, max_size=500
    )
)
def test_a_path_is_finite_and_near_the_last_level_for_any_fit(levels: list[float]) -> None:
    model = fit(levels)
    if model is None:
        return
    for level in path(model, levels):
        assert abs(level - levels[-1]) <= MOST_CHANGE + 1e-9
    change = rise(model, levels)
    assert math.isnan(change) or abs(change) * AHEAD <= MOST_CHANGE + 1e-9


def test_the_upper_quantile_rises_when_rises_follow_each_other() -> None:
    rng, levels, step = np.random.default_rng(4), [0.0], 0.0
    for _ in range(1500):
        step = 0.8 * step + rng.normal(0, 0.02)
        levels.append(0.98 * levels[-1] + step)
    model = fit(levels)
    assert model is not None
    rising, falling = [0.1 * i for i in range(20)], [-0.1 * i for i in range(20)]
    assert rise(model, rising) > 0.05
    assert rise(model, falling) < -0.05


def test_a_fit_is_the_same_when_restored_from_json(fitted: Fit) -> None:
    state = fitted.state()  # an absent season is NaN, which no equality of fits holds for
    assert Fit.from_state(json.loads(json.dumps(state))).state() == state
    short = Fit(0.1, RECENT, (0.05,) * 12)
    restored = Fit.from_state(json.loads(json.dumps(short.state())))
    assert (restored.lags, restored.upper) == (RECENT, ())
    assert math.isnan(restored.daily)


@pytest.mark.parametrize(
    "change",
    [
        {"lags": [1, 2]},
        {"lags": [MOST_BINS + 1, *range(2, 13)]},
        {"lags": [0, *range(2, 13)]},
        {"coefficients": [math.nan] * 12},
        {"upper": [1.0]},
        {"upper": [math.inf] * 4},
    ],
)
def test_invalid_state_of_a_fit_is_refused(change: dict[str, list[float]]) -> None:
    state = Fit(0.1, RECENT, (0.05,) * 12).state()
    with pytest.raises(ValueError, match=r"lags|upper"):
        Fit.from_state(state | change)
