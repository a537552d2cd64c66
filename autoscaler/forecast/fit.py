"""Regressions on two weeks of load by statsmodels, which are too slow for a tick. Pure.

A fit has three parts: an autoregression of the logarithm of the load in five-minute bins, with lags of the
last hour, a day, two days and a week, as far as the history reaches; a regression of an upper quantile of the
change in a quarter of an hour; and the strengths of the daily and weekly seasons, by STL. A fit takes about
0.1 s on one core. The import of statsmodels takes a second and 120 MB, so `fit` imports it.

Strength of a season: Wang, Smith and Hyndman, Characteristic-based clustering for time series data, 2006.
The mean of few cycles also explains a share of pure noise, which `strength` subtracts.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscaler.forecast.history import DAY_BINS, MOST_BINS

RECENT = tuple(range(1, 13))
"""Lags in bins: an hour."""
SEASONAL = (DAY_BINS, 2 * DAY_BINS, 7 * DAY_BINS)
"""A day, two days, a week."""
LEAST_BINS = 72
"""Bins that a fit needs: six hours for 13 coefficients."""
LEAST_SEASONAL_BINS = DAY_BINS // 2
"""Least bins that the coefficient of a seasonal lag is estimated from: half a day beyond the lag."""
OUTLIER = 5.0
"""Standard deviations, by the median absolute deviation, at which deviations from the usual load are cut:
flash crowds."""
LEAST_DEVIATION = 0.05
"""Least deviation of the logarithm: with constant load every change would be an outlier."""
LEAST_DAYS = 3
"""Least days of which the median is a usual day."""
LEAST_CYCLES = 2
"""Least periods for the strength of a season: the history has no more than two weeks."""
LEAST_STRENGTH = 0.1
"""Least strength of a season, 0 to 1: the lags of a weaker season are noise in the regression."""
QUANTILE = 0.95
"""The regressed quantile: two weeks have 200 bins beyond it."""
AHEAD = 3
"""Bins from the last bin to the bin whose upper quantile is regressed: a quarter of an hour. The longest
horizon, nine minutes (1.8 bins), begins up to one and a half bins after the middle of the last bin."""
CHANGES = (1, 3, 12)
"""Bins over which a change explains the upper quantile of the next change: five minutes, a quarter of an
hour, an hour."""
STEPS = 6
"""Forecast bins: half an hour, because the longest horizon is nine minutes and a bin may come late."""
MOST_CHANGE = 1.5
"""Largest difference of the logarithms of a forecast and the last bin."""
MOST_ITERATIONS = 60
"""Most iterations of the quantile regression: about 20 ms."""
_DEVIATIONS_PER_MAD = 1.4826
"""Ratio of the standard deviation to the median absolute deviation (MAD) of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The coefficients of two regressions, and the strengths of the seasons.

    A level is the logarithm of the load in one bin. By the autoregression, a level is `constant` plus the sum
    of `coefficients` times earlier levels; the quantile regression has the coefficients `upper`.
    """

    constant: float
    lags: tuple[int, ...]
    """Bins, in rising order."""
    coefficients: tuple[float, ...]
    """One for each lag."""
    daily: float = math.nan
    """Strength of the shape of the day, 0 to 1; NaN: the history is too short for it."""
    weekly: float = math.nan
    """The same of the week."""
    upper: tuple[float, ...] = ()
    """Coefficients of the upper quantile of the change in `AHEAD` bins: the constant, the coefficients of
    `CHANGES`, and with a daily season the coefficient of the same change a day before. The constant is
    without the mean of the regressed quantile, because the weighted mean of all forecasts (`horizon`)
    corrects the bias of each."""

    def state(self) -> dict[str, Any]:
        """Return the fit for JSON."""
        return {
            "constant": self.constant,
            "lags": list(self.lags),
            "coefficients": list(self.coefficients),
            "daily": None if math.isnan(self.daily) else self.daily,
            "weekly": None if math.isnan(self.weekly) else self.weekly,
            "upper": list(self.upper),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Fit":
        """Return the fit of a result of `state`.

        Raises:
            ValueError: the state is not one of a fit.
        """
        lags, coefficients = tuple(map(int, state["lags"])), tuple(map(float, state["coefficients"]))
        upper = tuple(map(float, state["upper"]))
        is_whole = len(lags) == len(coefficients) > 0 and list(lags) == sorted(set(lags)) and lags[0] > 0
        if not is_whole or lags[-1] > MOST_BINS or not all(map(math.isfinite, (*coefficients, *upper))):
            raise ValueError(f"lags {lags} with coefficients {coefficients}")
        if len(upper) not in (0, 1 + len(CHANGES), 2 + len(CHANGES)):
            raise ValueError(f"{len(upper)} coefficients of the upper quantile")
        daily, weekly = (
            math.nan if state[name] is None else float(state[name]) for name in ("daily", "weekly")
        )
        return cls(float(state["constant"]), lags, coefficients, daily, weekly, upper)


def fit(history: Sequence[float]) -> Fit | None:
    """Return the regressions of levels (logarithms of the load), one for each bin, the oldest first.

    None if the levels do not determine the regressions.
    """
    if len(history) < LEAST_BINS or not all(map(math.isfinite, history)):
        return None
    import numpy as np  # noqa: PLC0415 as statsmodels: with the first fit
    from statsmodels.tools.sm_exceptions import IterationLimitWarning, ModelWarning  # noqa: PLC0415
    from statsmodels.tsa.ar_model import AutoReg  # noqa: PLC0415

    levels = np.asarray(history, dtype=np.float64)
    if np.ptp(levels) < LEAST_DEVIATION:
        return None
    levels = winsorized(levels)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelWarning)
        warnings.simplefilter("error", RuntimeWarning)
        # An inaccurate quantile regression does no harm: its errors reduce its weight in the mixture.
        warnings.simplefilter("ignore", IterationLimitWarning)
        try:
            daily, weekly = strength(levels, DAY_BINS), strength(levels, 7 * DAY_BINS)
            seasonal = _seasonal(len(levels), daily, weekly)
            begin = max(seasonal, default=0)
            lagged = [levels[begin - lag : len(levels) - lag] for lag in seasonal]
            exog = np.column_stack(lagged) if lagged else None
            params = AutoReg(levels[begin:], lags=list(RECENT), trend="c", exog=exog).fit().params
            upper = _upper_of(levels, is_daily=DAY_BINS in seasonal)
        except (ModelWarning, RuntimeWarning, ValueError, np.linalg.LinAlgError):
            return None
    if not np.isfinite(params).all():
        return None
    return Fit(
        float(params[0]), RECENT + seasonal, tuple(float(value) for value in params[1:]), daily, weekly, upper
    )


def _seasonal(count: int, daily: float, weekly: float) -> tuple[int, ...]:
    """Return the seasonal lags that `count` bins determine, without the lags of weak seasons.

    `daily` and `weekly` are strengths; NaN is not weak, as a lag needs a shorter history than its strength.
    """
    strengths = (daily, daily, weekly)
    return tuple(
        lag
        for lag, season in zip(SEASONAL, strengths, strict=True)
        if count >= lag + LEAST_SEASONAL_BINS and not season < LEAST_STRENGTH
    )


def path(fitted: Fit, history: Sequence[float]) -> tuple[float, ...]:
    """Return the last level and the forecast levels of the next `STEPS` bins; empty for a history that is too
    short.
    """
    count = len(history)
    if count < fitted.lags[-1]:
        return ()
    last = history[-1]
    levels = [last]
    terms = tuple(zip(fitted.lags, fitted.coefficients, strict=True))
    for step in range(STEPS):
        level = fitted.constant
        for lag, coefficient in terms:
            level += coefficient * (levels[step - lag + 1] if lag <= step else history[count + step - lag])
        levels.append(min(max(level, last - MOST_CHANGE), last + MOST_CHANGE))
    return tuple(levels)


def rise(fitted: Fit, history: Sequence[float]) -> float:
    """Return the upper quantile of the change of the level per bin in the next `AHEAD` bins, by `Fit.upper`,
    less its mean over the fitted history; NaN without coefficients, or for a history that is too short.
    """
    upper, count = fitted.upper, len(history)
    is_daily = len(upper) > 1 + len(CHANGES)
    longest_span = DAY_BINS if is_daily else CHANGES[-1]
    if not upper or count <= longest_span:
        return math.nan
    last, change = history[-1], upper[0]
    for span, coefficient in zip(CHANGES, upper[1:], strict=False):
        change += coefficient * (last - history[count - 1 - span])
    if is_daily:
        day_before = count - 1 - DAY_BINS
        change += upper[-1] * (history[day_before + AHEAD] - history[day_before])
    return min(max(change, -MOST_CHANGE), MOST_CHANGE) / AHEAD


def _upper_of(levels: Any, *, is_daily: bool) -> tuple[float, ...]:
    """Return the coefficients of `Fit.upper`; none for a regression that is not finite."""
    import numpy as np  # noqa: PLC0415
    from statsmodels.regression.quantile_regression import QuantReg  # noqa: PLC0415

    spans = (*CHANGES, DAY_BINS) if is_daily else CHANGES
    bins = np.arange(spans[-1], len(levels) - AHEAD)
    columns = [np.ones(len(bins)), *(levels[bins] - levels[bins - span] for span in CHANGES)]
    if is_daily:
        columns.append(levels[bins + AHEAD - DAY_BINS] - levels[bins - DAY_BINS])
    responses = levels[bins + AHEAD] - levels[bins]
    regressors = np.column_stack(columns)
    params = QuantReg(responses, regressors).fit(q=QUANTILE, max_iter=MOST_ITERATIONS).params
    params[0] -= (regressors @ params).mean()  # see `Fit.upper`
    return tuple(float(value) for value in params) if np.isfinite(params).all() else ()


def strength(levels: Any, period: int) -> float:
    """Return the share of the variance about the trend that a season explains, 0 to 1; NaN for fewer than
    `LEAST_CYCLES` periods.

    Args:
        levels: array of the levels, one for each bin, the oldest first.
        period: bins of the season.

    Raises:
        ValueError: from STL.
    """
    import numpy as np  # noqa: PLC0415
    from statsmodels.tsa.seasonal import STL  # noqa: PLC0415

    if len(levels) < LEAST_CYCLES * period:
        return math.nan
    jump = max(period // 20, 1)
    # Loess over 35 cycles (`seasonal`), more than the history has, makes the seasonal part nearly the mean of
    # all cycles: a part that changes with each cycle fits any noise.
    parts = STL(
        levels,
        period=period,
        seasonal=35,
        seasonal_deg=0,
        seasonal_jump=jump,
        trend_jump=jump,
        low_pass_jump=jump,
    ).fit(inner_iter=2)
    detrended_variance = float(np.var(parts.seasonal + parts.resid))
    if detrended_variance <= 0:
        return 0.0
    cycles = len(levels) / period
    unexplained = float(np.var(parts.resid)) / detrended_variance
    # The mean of n cycles of noise leaves (n - 1) / n of the noise's variance unexplained.
    return max(0.0, 1 - unexplained * cycles / (cycles - 1))


def winsorized(levels: Any) -> Any:
    """Return the levels with outliers cut, as an array of the same length.

    The usual level of a bin is the median of the levels at its time of day; with fewer than `LEAST_DAYS`
    days, the median of all levels.
    """
    import numpy as np  # noqa: PLC0415

    count = len(levels)
    days = count // DAY_BINS
    usual = np.full(count, np.median(levels))
    if days >= LEAST_DAYS:
        whole_days = levels[count - days * DAY_BINS :].reshape(days, DAY_BINS)
        usual_day = np.median(whole_days, axis=0)
        # The last whole day ends at the last bin; one more day covers the bins before the first whole day.
        repeated = np.tile(usual_day, days + 1)
        usual = repeated[len(repeated) - count :]
    residuals = levels - usual
    absolute_deviation = float(np.median(np.abs(residuals - np.median(residuals))))
    deviation = max(_DEVIATIONS_PER_MAD * absolute_deviation, LEAST_DEVIATION)
    return usual + np.clip(residuals, -OUTLIER * deviation, OUTLIER * deviation)
