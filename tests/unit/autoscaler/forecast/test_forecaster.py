import datetime as dt
import json
import math
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.forecast.fit import Fit, fit
from autoscaler.forecast.forecaster import Forecaster
from autoscaler.forecast.profile import BIN, DAY

START = 1_700_006_400.0
SHARE = 0.995


def constant(seconds: float, rate: float = 10.0, step: float = 5.0, unit: float = 1.0) -> Forecaster:
    forecaster = Forecaster(unit, SHARE)
    for i in range(int(seconds / step)):
        forecaster.observe(START + (i + 1) * step, step, rate * step)
    return forecaster


@pytest.mark.parametrize("horizon", [5.0, 60.0, 100.0, 2000.0])
def test_the_band_lies_at_the_load_when_that_is_constant(horizon: float) -> None:
    band = constant(3600).band(horizon)
    assert band.median == pytest.approx(10, rel=0.1)
    assert 9 < band.lower <= band.median <= band.upper < 12


@settings(max_examples=60)
@given(
    readings=st.lists(
        st.tuples(
            st.sampled_from((0.5, 5.0, 5.0, 5.0, 60.0, 4000.0, 90_000.0)),
            st.sampled_from((0.0, 0.0, 1.0, 50.0, 5e7)) | st.floats(0, 1e9),
        ),
        min_size=1,
        max_size=80,
    ),
    unit=st.sampled_from((0.01, 1.0, 1e4)),
)
def test_band_is_finite_and_not_negative_for_any_readings(
    readings: list[tuple[float, float]], unit: float
) -> None:
    forecaster, end = Forecaster(unit, SHARE), START
    for gap, amount in readings:
        end += gap
        forecaster.observe(end, 5.0, amount)
        for horizon in (1.0, 65.0, 3600.0):
            band = forecaster.band(horizon)
            assert 0 <= band.lower <= band.median <= band.upper < math.inf
        assert 0 <= forecaster.last < math.inf


def test_band_is_finite_and_falls_after_one_reading_of_a_million_times_the_load() -> None:
    forecaster = constant(3600)
    forecaster.observe(START + 3605, 5.0, 5e7)
    assert math.isfinite(forecaster.band(60).upper)
    for i in range(720):
        forecaster.observe(START + 3610 + 5 * i, 5.0, 50.0)
    assert forecaster.band(60).upper < 200


def test_late_reading_is_ignored() -> None:
    forecaster = constant(600)
    before = forecaster.band(60)
    for back in (0.0, 5.0, 30.0):
        forecaster.observe(START + 600 - back, 5.0, 1e6)
    forecaster.observe(START + 605, 0.0, 1e6)
    assert forecaster.band(60) == before


def test_forecasts_continue_when_the_clock_is_set_back_an_hour() -> None:
    forecaster = constant(3600)
    state = forecaster.state()
    before, seen = state["horizons"], state["seen"]
    for i in range(240):
        forecaster.observe(START + 5 * (i + 1), 5.0, 200.0)
    for known, horizon in zip(before, forecaster.state()["horizons"], strict=True):
        assert horizon["errors"] != known["errors"], (
            "errors are learned at once, and not from an hour later on"
        )
    assert forecaster.state()["seen"] != seen
    band = forecaster.band(60)
    assert band.lower < 40 < band.upper * 1.1
    assert band.median > 30


def _daily(time: float) -> float:
    return 100.0 if (time - START) % DAY >= DAY / 2 else 10.0


def test_the_rise_of_the_day_is_expected_when_three_days_were_seen() -> None:
    forecaster = Forecaster(1.0, SHARE)
    step, noise = 60.0, np.random.default_rng(1)
    ends = START + step * np.arange(1, int(3.5 * DAY / step) - 3)
    for end in ends:
        forecaster.observe(end, step, float(noise.poisson(_daily(end - step) * step)))
    assert forecaster.last < 15
    band = forecaster.band(540)
    assert band.upper > 30


def test_a_ramp_is_followed_when_it_lasts_minutes() -> None:
    forecaster = constant(3600)
    rate = 10.0
    for i in range(72):
        rate = 10 * math.exp(i * 5 / 300)
        forecaster.observe(START + 3605 + 5 * i, 5.0, 5 * rate)
    assert forecaster.band(60).upper > 1.1 * rate


def test_random_rise_is_not_extrapolated() -> None:
    forecaster, noise, risen = Forecaster(10.0, 0.995), np.random.default_rng(5), 0
    for i in range(2000):
        forecaster.observe(START + 5 * i, 5.0, float(noise.poisson(50 * 5)))
        risen += forecaster.extrapolated(60.0) > 0
    assert risen < 20


def test_step_of_any_height_is_not_a_steady_rise() -> None:
    forecaster = Forecaster(10.0, 0.995)
    for i in range(200):
        forecaster.observe(START + 5 * i, 5.0, 50.0 if i < 120 else 5000.0)
        assert forecaster.extrapolated(120.0) == 0


def test_a_steady_rise_is_extrapolated_when_it_has_lasted_two_minutes() -> None:
    forecaster = Forecaster(10.0, 0.995)
    for i in range(150):
        rate = 50.0 + max(i - 100, 0) * 5 * 0.5
        forecaster.observe(START + 5 * i, 5.0, 5 * rate)
    assert forecaster.extrapolated(60.0) == pytest.approx(rate + 60 * 0.5, rel=0.05)


def test_band_stays_below_the_highest_load_when_load_is_erratic() -> None:
    forecaster, levels = Forecaster(10.0, 0.995), np.random.default_rng(7)
    for _ in range(400):
        level = float(levels.uniform(1, 100))
        for _ in range(12):
            forecaster.observe(forecaster._end + 5 if forecaster._end > 0 else START, 5.0, 5 * level)
    assert forecaster.band(120.0).upper < 1.4 * 100


def test_the_band_is_the_same_when_restored_from_json() -> None:
    forecaster, restored = constant(0), constant(0)
    noise = np.random.default_rng(3).poisson(50, 4000)
    for i, amount in enumerate(noise[:3000]):
        forecaster.observe(START + 5 * (i + 1), 5.0, float(amount))
    restored.restore(json.loads(json.dumps(forecaster.state())))
    for i, amount in enumerate(noise[3000:3240], 3000):
        for each in (forecaster, restored):
            each.observe(START + 5 * (i + 1), 5.0, float(amount))
    for horizon in (20.0, 60.0, 540.0):
        before, after = forecaster.band(horizon), restored.band(horizon)
        assert after.upper == pytest.approx(before.upper, rel=0.05)
        assert after.median == pytest.approx(before.median, rel=0.03)
        assert after.lower == pytest.approx(before.lower, rel=0.05)


CHANGES = {"spring": "2025-03-30", "autumn": "2025-10-26"}
BERLIN = ZoneInfo("Europe/Berlin")


def opening(day: str, zone: ZoneInfo | None) -> float:
    """Return the upper quantile of the forecast, a minute old, for the minutes after 8:00 of a day in Berlin,
    when load rises by ten.
    """
    rises = dt.datetime.fromisoformat(f"{day}T08:00").replace(tzinfo=BERLIN).timestamp()
    forecaster, step = Forecaster(1.0, SHARE, zone), 60.0
    noise = np.random.default_rng(4)
    for end in np.arange(rises - 6 * DAY, rises - 59, step):
        hour = dt.datetime.fromtimestamp(end - 1, BERLIN).hour
        rate = 100.0 if 8 <= hour < 20 else 10.0
        forecaster.observe(float(end), step, float(noise.poisson(rate * step)))
        if end % DAY == 0:
            forecaster.set_fit(fit(forecaster.history.levels))
    assert forecaster.last < 15
    return forecaster.band(540).upper


@pytest.mark.parametrize("season", CHANGES)
def test_daily_rise_is_expected_on_the_day_after_a_clock_change_in_a_known_zone(
    season: str,
) -> None:
    after = dt.date.fromisoformat(CHANGES[season])
    usual = opening(str(after - dt.timedelta(days=1)), BERLIN)
    assert usual > 30, "without the shape of the day it is 16 on the day after"
    assert opening(str(after + dt.timedelta(days=1)), BERLIN) == pytest.approx(usual, rel=0.2)


def test_regression_without_skill_gets_no_more_weight() -> None:
    bands = []
    for is_fitted in (False, True):
        forecaster, noise = Forecaster(1.0, SHARE), np.random.default_rng(6)
        for i in range(4000):
            if is_fitted and i % 60 == 0:
                # What would be seen if load doubled every five minutes, which it does not.
                forecaster.set_fit(Fit(0.7, (1,), (1.0,), upper=(2.1, 0.0, 0.0, 0.0)))
            forecaster.observe(START + 30 * (i + 1), 30.0, float(noise.poisson(50 * 30)))
        assert forecaster.weights(180.0)["fitted"] < 0.02
        bands.append(forecaster.band(180.0))
    assert bands[1].upper == pytest.approx(bands[0].upper, rel=0.02)
    assert bands[1].median == pytest.approx(bands[0].median, rel=0.01)


def test_regression_gets_the_most_weight_when_it_alone_has_skill() -> None:
    forecaster = Forecaster(1.0, SHARE)
    forecaster.set_fit(Fit(0.0, (7,), (1.0,)))  # of 35 minutes, which no day is a multiple of
    for i in range(12_000):
        rate = math.exp(2.5 if (START + 15 * i) // BIN % 7 < 3 else 3.5)
        forecaster.observe(START + 15 * (i + 1), 15.0, rate * 15)
    weights = forecaster.weights(540.0)
    assert max(weights, key=lambda name: weights[name]) == "fitted"


def test_state_of_a_version_without_regressions_is_restored() -> None:
    forecaster, restored = constant(7200), Forecaster(1.0, SHARE)
    state = forecaster.state()
    del state["history"], state["fit"]
    for horizon in state["horizons"]:
        del horizon["centralLosses"]
        for field in ("errors", "losses", "lossSeconds"):
            horizon[field] = horizon[field][:8]
    restored.restore(state)
    restored.observe(START + 7205, 5.0, 50.0)
    assert restored.band(60.0).upper == pytest.approx(forecaster.band(60.0).upper, rel=0.05)
    assert len(restored.history) == 0


@pytest.mark.parametrize(("before", "after"), [(1.0, 50.0), (50.0, 1.0)])
def test_band_is_that_of_the_new_unit_when_restored_from_another_unit(before: float, after: float) -> None:
    """As when an experiment has measured the capacity of a replica, or a new version has no profile."""
    taught = [Forecaster(unit, SHARE) for unit in (before, after)]
    step, noise = 30.0, np.random.default_rng(1)

    def observe(forecasters: list[Forecaster], begin: float, end: float) -> None:
        for time in np.arange(begin + step, end, step):
            amount = float(noise.poisson((100 + 80 * math.sin(2 * math.pi * time / DAY)) * step))
            for each in forecasters:
                each.observe(float(time), step, amount)

    observe(taught, START, START + 3 * DAY)
    taught[0].set_fit(Fit(0.1, (1, 2), (0.5, 0.4), daily=0.3))
    restored = Forecaster(after, SHARE)
    restored.restore(json.loads(json.dumps(taught[0].state())))
    assert restored.history.levels == pytest.approx(taught[1].history.levels, abs=1e-4)
    assert restored.state()["fit"] is None, "its levels had another floor"
    assert restored.state()["unit"] == after
    observe([taught[1], restored], START + 3 * DAY, START + 3 * DAY + 600)
    for horizon in (20.0, 60.0, 540.0):
        expected, band = taught[1].band(horizon), restored.band(horizon)
        assert band.lower == pytest.approx(expected.lower, rel=0.02)
        assert band.median == pytest.approx(expected.median, rel=0.01)
        assert band.upper == pytest.approx(expected.upper, rel=0.03)
    for each in (taught[1], restored):  # a load far above: the loads of the last days bound the quantile
        each.observe(START + 3 * DAY + 630, 30.0, 170 * 30.0)
    assert restored.band(540.0).upper == pytest.approx(taught[1].band(540.0).upper, rel=0.1)


@pytest.mark.parametrize("unit", [0.0, -1.0, math.nan, math.inf])
def test_state_with_a_unit_that_is_no_load_is_refused(unit: float) -> None:
    with pytest.raises(ValueError, match="unit"):
        constant(600).restore(constant(600).state() | {"unit": unit})


def test_state_of_a_version_without_units_is_restored() -> None:
    forecaster, restored = constant(7200), constant(0)
    state = forecaster.state()
    del state["unit"]
    restored.restore(state)
    assert restored.state()["seen"] == state["seen"]
    assert restored.state()["daily"] == state["daily"]


def test_history_and_fit_are_restored_from_json() -> None:
    forecaster, restored = constant(86_400), Forecaster(1.0, SHARE)
    fitted = Fit(0.1, (1, 2), (0.5, 0.4), daily=0.3)
    forecaster.set_fit(fitted)
    restored.restore(json.loads(json.dumps(forecaster.state())))
    assert restored.history.levels == forecaster.history.levels
    assert len(restored.history) >= 286
    assert restored.state()["fit"] == fitted.state()
