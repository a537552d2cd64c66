import json
import math

import numpy as np
import pytest

from autoscaler.forecast.horizon import Horizon

STEP = 5.0


def levels(count: int, seed: int = 1, scale: float = 0.2) -> list[float]:
    return [float(value) for value in np.random.default_rng(seed).normal(2.0, scale, count)]


@pytest.mark.parametrize("share", [0.9, 0.99])
def test_the_upper_quantile_covers_its_share_when_noise_is_independent(share: float) -> None:
    horizon = Horizon(20.0, ("mean",), share)
    values = levels(12_000)
    above = {0.1: 0, 0.5: 0, share: 0}
    counted = 0
    for i, level in enumerate(values):
        horizon.advance(i * STEP, level, (2.0,), 1.0)
        if i > 4000:
            counted += 1
            for quantile, value in zip(above, horizon.forecast((2.0,)), strict=True):
                above[quantile] += values[(i + 4) % len(values)] > value
    upper_share = 1 - horizon._upper_share()
    assert above[share] / counted == pytest.approx(upper_share, rel=0.4, abs=0.002)
    assert above[0.5] / counted == pytest.approx(0.5, abs=0.04)
    assert above[0.1] / counted == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize(("shift", "best"), [(0.0, "wave"), (60 * math.pi, "flat")])
def test_weights_go_to_the_forecast_that_has_skill_when_the_other_has_none(shift: float, best: str) -> None:
    horizon = Horizon(20.0, ("wave", "flat"), 0.95)
    for i, noise in enumerate(levels(3000, scale=0.1)):
        then = 2 + math.sin((i + 4 + shift) / 60)
        horizon.advance(i * STEP, noise + math.sin(i / 60), (then, 2.0), 1.0)
    assert horizon.weights()[best] > 0.8


def test_forecast_without_values_has_no_weight_beside_one_with_values() -> None:
    horizon = Horizon(20.0, ("known", "unknown"), 0.95)
    for i, level in enumerate(levels(500)):
        horizon.advance(i * STEP, level, (2.0, math.nan), 1.0)
    assert horizon.weights() == {"known": 1.0, "unknown": 0.0}
    assert all(math.isfinite(value) for value in horizon.forecast((2.0, math.nan)))


def test_quantiles_are_in_order_when_errors_are_biased() -> None:
    horizon = Horizon(60.0, ("low",), 0.99)
    for i, level in enumerate(levels(2000)):
        horizon.advance(i * STEP, level, (1.8,), 1.0)
    low, median, high = horizon.forecast((1.8,))
    assert low < median < high
    assert median == pytest.approx(2.0, abs=0.07)


def test_the_band_is_wider_when_the_load_varies_more() -> None:
    widths = []
    for scale in (0.05, 0.4):
        horizon = Horizon(20.0, ("mean",), 0.99)
        for i, level in enumerate(levels(3000, scale=scale)):
            horizon.advance(i * STEP, level, (2.0,), 1.0)
        low, _, high = horizon.forecast((2.0,))
        widths.append(high - low)
    assert widths[1] > 4 * widths[0]


def test_the_forecast_is_the_same_when_restored_from_json() -> None:
    horizon, restored = (Horizon(20.0, ("mean", "other"), 0.99) for _ in range(2))
    for i, level in enumerate(levels(1600)):
        horizon.advance(i * STEP, level, (2.0, 2.3), 1.0)
    horizon._refresh()
    restored.restore(json.loads(json.dumps(horizon.state())))
    assert restored.weights() == pytest.approx(horizon.weights())
    assert restored.forecast((2.0, 2.3)) == pytest.approx(horizon.forecast((2.0, 2.3)), abs=0.01)


def test_upper_quantile_stays_near_earlier_errors_when_calm_load_becomes_volatile() -> None:
    horizon, rng = Horizon(20.0, ("mean",), 0.999), np.random.default_rng(3)
    for i in range(16_000):
        # Calm noise with a jump of three times the load every half an hour, then noise of a crowd.
        noise, jump = (0.01, 1.1 * (i % 360 == 0)) if i < 15_000 else (0.3, 0.0)
        horizon.advance(i * STEP, 2 + jump + float(rng.normal(0, noise)), (2.0,), 1.0)
    low, median, high = horizon.forecast((2.0,))
    assert low < median < high
    assert 2 + 0.6 < high < 2 + 1.5, "eight deviations of a crowd would be ten times the load"


def test_the_upper_quantile_covers_less_when_the_risk_is_multiplied_and_the_median_stays() -> None:
    horizon, values = Horizon(20.0, ("mean",), 0.999), levels(8000)
    for i, level in enumerate(values):
        horizon.advance(i * STEP, level, (2.0,), 1.0)
    uppers = []
    for factor in (1.0, 20.0, 200.0, 1e6):
        horizon.multiply_risk(factor)
        _, median, upper = horizon.forecast((2.0,))
        uppers.append(upper)
    assert uppers == sorted(uppers, reverse=True)
    assert uppers[0] > uppers[1] > uppers[2] > uppers[3] == median


def test_a_state_is_restored_when_it_has_no_unscaled_errors() -> None:
    horizon, restored = (Horizon(20.0, ("mean",), 0.99) for _ in range(2))
    for i, level in enumerate(levels(1600)):
        horizon.advance(i * STEP, level, (2.0,), 1.0)
    state = horizon.state()
    del state["heldUnscaled"]
    restored.restore(state)
    assert restored.forecast((2.0,)) == pytest.approx(horizon.forecast((2.0,)), abs=0.02)


@pytest.mark.parametrize("share", [0.05, 0.9])
def test_quantile_covers_its_share_at_any_risk(share: float) -> None:
    horizon, values, below = Horizon(20.0, ("mean",), 0.999), levels(12_000), 0
    for i, level in enumerate(values[:-4]):
        horizon.advance(i * STEP, level, (2.0,), 1.0)
        if i >= 4000:
            below += values[i + 4] <= horizon.quantile((2.0,), share)
    assert below / (len(values) - 4004) == pytest.approx(share, abs=0.02)


def test_forecast_with_its_first_values_has_little_weight() -> None:
    horizon, values = Horizon(20.0, ("last", "late"), 0.95, (1.0, 0.1)), levels(2100)
    for i, level in enumerate(values):
        horizon.advance(i * STEP, level, (2.0, math.nan if i < 2000 else 2.0), 1.0)
    assert 0 < horizon.weights()["late"] < 0.15
