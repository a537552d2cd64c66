"""Forecasts the load of one target for the next minutes, from its last readings and the days before.

Forecasts are logarithms of the load plus a floor, so that no forecast is negative and errors are relative.
"""

import datetime as dt
import math
from collections import deque
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from autoscaler.decision_values import Band
from autoscaler.forecast import recent
from autoscaler.forecast.fit import Fit, path, rise
from autoscaler.forecast.histogram import DecayedHistogram
from autoscaler.forecast.history import History
from autoscaler.forecast.horizon import MOST_RISK, Horizon
from autoscaler.forecast.profile import BIN, DAY, WEEK, LoadProfile
from autoscaler.forecast.recent import KEPT, STEADY_LIMIT, TREND_LIMIT, TRENDS, SteadyRise, Trend

HORIZONS = (20.0, 60.0, 180.0, 540.0)
"""Seconds. Errors are learned at these fixed horizons, and quantiles are interpolated between them, so that
learned errors stay valid when the start-up time changes."""
WAIT = 2.0
"""Least seconds that work may wait: replicas of rate r serve r x (T + 2 s) of the work that arrives in any T
seconds in time."""
BEGIN = 120.0
"""Seconds of readings before errors are learned: until then the averages depend on few readings."""
SLOW = 90.0
"""Seconds of the slow average, which the noise of a reading does not move."""
HOUR = 3600.0
"""Seconds of the average that gives the size of a service before it has days of load."""
SHIFT = 3600.0
"""Seconds by which the daily shape may be shifted: clocks change twice a year, and the spec may have no
`prediction.timeZone`."""
SEEN_MEMORY = 2 * DAY
"""Seconds after which a load weighs 1/e in the distribution of all loads."""
SEEN_STRIDE = 10.0
"""Seconds between the loads in this distribution."""
SEEN_SHARE = 0.2
"""Share of the risk that bounds the upper quantile: the bound is the load that was exceeded this rarely,
unless the current load is as high or rises."""
SEEN_PRIOR = 1e-3
"""Weight of the distribution's prior, in loads: next to nothing, as the first load is a better guess."""
LEAST_WEIGHT = 0.1
MOST_WEIGHT = 2.0
"""Bounds of the weight of an error, which is the ratio of the load to the usual load, because an error at a
higher load affects more requests. One event must not dominate the errors."""
NAMES = ("last", "average", "drift", "daily", "daily-1h", "daily+1h", "weekly", "usual", "fitted", "quantile")
"""The forecasts that each horizon mixes; `_points` computes them. New forecasts are appended, because stored
states refer to forecasts by position."""
REGRESSED = 0.1
"""Weight of a regression relative to forecasts of the same loss: a regression without additional information
reduces the weight of accurate forecasts."""
PRIORS = (1.0,) * (len(NAMES) - 2) + (REGRESSED,) * 2
"""Weight of each of `NAMES`; the last two are the regressions."""
FLOOR = 0.25
"""Share of a replica's capacity: changes of a load below it need no replica."""
SET_BACK = 60.0
"""Seconds: a reading that ends at most this long before the last one is ignored as late, and an earlier end
means that the clock was set back."""
LONGEST_GAP = 3600.0
"""Seconds without readings after which the averages start again."""


class _Now(NamedTuple):
    """One time, and estimates of the logarithm of the load at that time, which the forecasts at all horizons
    share.
    """

    time: float = -math.inf
    """Local seconds."""
    last: float = math.nan
    """By `Forecaster.last`."""
    slow: float = math.nan
    """By the average over `SLOW` seconds."""
    daily: float = math.nan
    """By the daily shape."""
    daily_before: float = math.nan
    """By the daily shape `SHIFT` before."""
    daily_after: float = math.nan
    """By the daily shape `SHIFT` after."""
    weekly: float = math.nan
    """By the weekly shape."""


class Forecaster:
    """Forecasts one series of load.

    Args:
        unit: load per second at which a difference matters: one replica's capacity.
        share: the upper quantile, 0 to 1: one minus the configured risk.
        zone: time zone of the daily and weekly shapes; None: UTC.
    """

    def __init__(self, unit: float, share: float, zone: ZoneInfo | None = None) -> None:
        self.wait = WAIT
        """Seconds that work may wait."""
        self.unit = max(unit, 1e-9)
        """Load per second, in which learned loads and levels are expressed."""
        self._floor = _floor(unit)
        self._seen = DecayedHistogram(SEEN_MEMORY / SEEN_STRIDE, SEEN_PRIOR)
        """Distribution of the logarithms of all loads, in units of `unit`."""
        self._next_seen = -math.inf
        """Unix seconds from which the next load is added to the distribution."""
        self._share = share
        self._risk_factor = 1.0
        """Ratio of the effective to the configured risk."""
        self._zone = zone
        self._offset, self._offset_until = 0.0, -math.inf
        """Seconds of the zone's offset from UTC, and the Unix seconds until which the offset is known."""
        self._horizons = [Horizon(seconds, NAMES, share, PRIORS) for seconds in HORIZONS]
        self._daily, self._weekly = LoadProfile(DAY), LoadProfile(WEEK)
        self._end = -math.inf
        """Unix seconds of the end of the last reading."""
        self._amounts: deque[float] = deque()
        """Load of each reading of the last `KEPT` seconds, the oldest first."""
        self._seconds: deque[float] = deque()
        """Seconds of each of these readings."""
        self._covered = 0.0
        """Sum of `_seconds`."""
        self._known = 0.0
        """Seconds of all readings since the averages began."""
        self._last = math.nan
        """Load per second by `recent.serving_rate`."""
        self._slow = math.nan
        """Mean load per second of the last `SLOW` seconds."""
        self._trend = Trend(0.0, 0.0)
        self._steady = SteadyRise(0.0, 0.0)
        self._usual = math.nan
        """Mean load per second of the last days."""
        self._hourly = 0.0
        """Mean load per second of the last hour; the time before the first reading counts as idle."""
        self._bin, self._bin_amount, self._bin_seconds = -1, 0.0, 0.0
        """The current bin: Unix seconds divided by `BIN`, and its load and seconds of readings so far."""
        self.history = History()
        """By local time: a repeated hour counts once, and a skipped hour repeats the day before."""
        self._fit: Fit | None = None
        self._path: tuple[float, tuple[float, ...]] = (0.0, ())
        """Local seconds of the middle of the last bin, and the levels by regression from that bin on, one for
        each bin; a level is a logarithm of the load plus the floor."""
        self._rise_quantile = math.nan
        """Upper quantile, by regression, of the change of the level per bin."""
        self._now = _Now()
        """At the last reading."""
        self._known_points: dict[float, tuple[float, ...]] = {}
        """Results of `_points` for the last reading, by horizon: `observe` and `band` use the same points."""

    @property
    def last(self) -> float:
        """Return the rate that would have served the last two minutes in time; 0 before the first reading."""
        return 0.0 if math.isnan(self._last) else self._last

    @property
    def mean(self) -> float:
        """Return the mean load of the last days or of the last hour, whichever is higher; 0 before the first
        reading.
        """
        return max(0.0 if math.isnan(self._usual) else self._usual, self._hourly)

    def multiply_risk(self, factor: float) -> None:
        """Set the effective risk to `factor` times the risk of `share`."""
        self._risk_factor = factor
        for horizon in self._horizons:
            horizon.multiply_risk(factor)

    def observe(self, end: float, seconds: float, amount: float) -> None:
        """Take a reading: `amount` of load arrived in the `seconds` until `end`."""
        if seconds <= 0 or self._end - SET_BACK < end <= self._end:
            return
        if end <= self._end:
            for horizon in self._horizons:
                horizon.start_again()
            self._next_seen = -math.inf
        if end - self._end > LONGEST_GAP:
            self._slow, self._known = math.nan, 0.0
            self._amounts.clear()
            self._seconds.clear()
            self._covered = 0.0
        self._known += seconds
        self._end = end
        self._smooth(seconds, amount)
        self._fill_bins(end, seconds, amount)
        self._estimate_now()
        if self._known < BEGIN:
            return
        weight = 1.0
        if self._usual > 0:
            weight = min(max(self._last / self._usual, LEAST_WEIGHT), MOST_WEIGHT)
        if end >= self._next_seen:
            self._next_seen = end + SEEN_STRIDE
            self._seen.add(math.log(max(self._last, 1e-9) / self.unit), weight)
        for horizon in self._horizons:
            # A horizon remembers forecasts once in a stride, and needs no points in between.
            points = self._points(horizon.seconds) if horizon.is_due(end) else ()
            horizon.advance(end, self._now.last, points, weight)

    def band(self, horizon: float) -> Band:
        """Return the forecast of the load `horizon` seconds after the last reading."""
        shorter, longer, inside = _between(horizon)
        first, second = self._horizons[shorter], self._horizons[longer]
        low, middle, high = first.forecast(self._points(first.seconds))
        if longer != shorter:
            second_low, second_middle, second_high = second.forecast(self._points(second.seconds))
            low += inside * (second_low - low)
            middle += inside * (second_middle - middle)
            high += inside * (second_high - high)
        seen_risk = min(SEEN_SHARE * (1 - self._share) * self._risk_factor, MOST_RISK)
        highest = max(
            math.exp(self._seen.quantile(1 - seen_risk)) * self.unit, self.last * math.exp(TREND_LIMIT)
        )
        # The learned errors do not include a ramp that has only begun, so the drift is a lower bound.
        upper_level = max(min(high, math.log(highest + self._floor)), middle, self._drift(horizon))
        lower, median, upper = (
            max(math.exp(level) - self._floor, 0.0) for level in (low, middle, upper_level)
        )
        return Band(horizon, lower, median, upper)

    def quantile(self, horizon: float, share: float) -> float:
        """Return any quantile of the expected load `horizon` seconds after the last reading, independent of
        the risk.
        """
        shorter, longer, inside = _between(horizon)
        first, second = (
            each.quantile(self._points(each.seconds), share)
            for each in (self._horizons[shorter], self._horizons[longer])
        )
        return max(math.exp(first + inside * (second - first)) - self._floor, 0.0)

    def extrapolated(self, horizon: float) -> float:
        """Return the load `horizon` seconds after the last reading by its steady rise; 0 unless the rise
        covers all spans, and so has the higher limit.
        """
        if self._steady.limit < STEADY_LIMIT:
            return 0.0
        load = self._trend.load
        # The load is that of the middle of the first span of `TRENDS`.
        risen = load + self._steady.rise * (horizon + TRENDS[0] / 2)
        return min(risen, load * math.exp(STEADY_LIMIT))

    def weights(self, horizon: float) -> dict[str, float]:
        """Return the share of each forecast in the mixture near a horizon."""
        return self._horizons[_between(horizon)[0]].weights()

    def _smooth(self, seconds: float, amount: float) -> None:
        """Update the recent loads and the averages by `amount` of load in `seconds`; the first reading begins
        only the slow average.
        """
        amounts, lengths = self._amounts, self._seconds
        amounts.append(amount)
        lengths.append(seconds)
        self._covered += seconds
        while len(lengths) > 1 and self._covered - lengths[0] >= KEPT:
            self._covered -= lengths.popleft()
            amounts.popleft()
        totals, spans = recent.sums(amounts), recent.sums(lengths)
        self._last = recent.serving_rate(totals, spans, self.wait)
        self._trend = recent.trend(totals, spans, self._floor)
        self._steady = recent.steady_rise(amounts, lengths)
        if math.isnan(self._slow):
            self._slow = self._last
            return
        rate = amount / seconds
        self._hourly += (1 - math.exp(-seconds / HOUR)) * (rate - self._hourly)
        self._slow += (1 - math.exp(-seconds / SLOW)) * (rate - self._slow)
        if math.isnan(self._usual):
            self._usual = rate
        self._usual += (1 - math.exp(-seconds / (2 * DAY))) * (rate - self._usual)

    def _fill_bins(self, end: float, seconds: float, amount: float) -> None:
        """Add a reading to the bin of its middle, and learn from the previous bin once it is over.

        A bin with readings of less than half of its time is not learned from.
        """
        index = int((end - seconds / 2) // BIN)
        if index != self._bin:
            if self._bin_seconds > 0.5 * BIN:
                level = math.log(self._bin_amount / self._bin_seconds + self._floor)
                local = self._local((self._bin + 0.5) * BIN)
                self._daily.learn(local, level)
                self._weekly.learn(local, level)
                self.history.add(int(local // BIN), level)
                self._plan()
            self._bin, self._bin_amount, self._bin_seconds = index, 0.0, 0.0
        self._bin_amount += amount
        self._bin_seconds += seconds

    def set_fit(self, fitted: Fit | None) -> None:
        """Use the regressions that were fitted to `history`; None: the history does not determine any."""
        self._fit = fitted
        self._plan()

    def _plan(self) -> None:
        """Compute the forecasts of the regressions for the bins after the last one."""
        self._path, self._rise_quantile = (0.0, ()), math.nan
        self._known_points.clear()
        if self._fit is not None and len(self.history):
            levels = self.history.levels
            self._path = ((self.history.end - 0.5) * BIN, path(self._fit, levels))
            self._rise_quantile = rise(self._fit, levels)

    def _estimate_now(self) -> None:
        """Compute the estimates that the forecasts at all horizons share."""
        now, daily = self._local(self._end), self._daily.at
        self._known_points.clear()
        self._now = _Now(
            time=now,
            last=math.log(self._last + self._floor),
            slow=math.log(self._slow + self._floor),
            daily=daily(now),
            daily_before=daily(now - SHIFT),
            daily_after=daily(now + SHIFT),
            weekly=self._weekly.at(now),
        )

    def _points(self, ahead: float) -> tuple[float, ...]:
        """Return each forecast of the logarithm of the load `ahead` seconds after the last reading, in the
        order of `NAMES`; NaN for a forecast without a value.

        The forecasts `daily`, `daily-1h`, `daily+1h` and `weekly` add the change of a shape to the slow
        average; `usual` is the daily shape itself.
        """
        if ahead in self._known_points:
            return self._known_points[ahead]
        now, slow, daily = self._now, self._now.slow, self._daily.at
        then = now.time + ahead
        daily_then = daily(then)
        points = (
            now.last,
            slow,
            self._drift(ahead),
            slow + daily_then - now.daily,
            slow + daily(then - SHIFT) - now.daily_before,
            slow + daily(then + SHIFT) - now.daily_after,
            slow + self._weekly.at(then) - now.weekly,
            daily_then,
            self._fitted(slow, now.time, ahead),
            slow + self._rise_quantile * ahead / BIN,
        )
        self._known_points[ahead] = points
        return points

    def _drift(self, ahead: float) -> float:
        """Return the logarithm of the load `ahead` seconds after the last reading, by its trend or by its
        steady rise, whichever is higher.
        """
        floor, load, rise = self._floor, self._trend.load, self._steady.rise
        seconds = ahead + TRENDS[0] / 2  # from the middle of the span of `load`
        change = min(max(self._trend.slope * seconds, -TREND_LIMIT), TREND_LIMIT)
        if rise > 0:
            steady_change = math.log((load + rise * seconds + floor) / (load + floor))
            change = max(change, min(steady_change, self._steady.limit))
        return math.log(load + floor) + change

    def _fitted(self, slow: float, now: float, ahead: float) -> float:
        """Return the forecast by autoregression `ahead` seconds after `now` (local seconds): the slow average
        plus the forecast change; NaN beyond the last bin of the forecast.
        """
        start, levels = self._path
        here = (now - start) / BIN
        target = here + ahead / BIN
        if here < 0 or target >= len(levels) - 1:
            return math.nan
        return slow + _at(levels, target) - _at(levels, here)

    def _local(self, time: float) -> float:
        """Return Unix seconds `time` as local seconds, in which 00:00 is a multiple of a day."""
        if self._zone is None:
            return time
        if time >= self._offset_until or time < self._offset_until - BIN:
            moment = dt.datetime.fromtimestamp(time, self._zone)
            offset = moment.utcoffset()
            self._offset = offset.total_seconds() if offset is not None else 0.0
            self._offset_until = (time // BIN + 1) * BIN
        return time + self._offset

    def state(self) -> dict[str, Any]:
        """Return the learned state for JSON."""
        return {
            "unit": self.unit,
            "end": self._end if self._end > -math.inf else None,
            "usual": None if math.isnan(self._usual) else self._usual,
            "seen": [round(weight, 4) for weight in self._seen.state()],
            "daily": self._daily.state(),
            "weekly": self._weekly.state(),
            "horizons": [horizon.state() for horizon in self._horizons],
            "history": self.history.state(),
            "fit": None if self._fit is None else self._fit.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a result of `state`, also of another unit; its `end` is ignored."""
        self._usual = math.nan if state["usual"] is None else float(state["usual"])
        self._seen.restore(state["seen"])
        self._daily.restore(**state["daily"])
        self._weekly.restore(**state["weekly"])
        if self._end > -math.inf:
            self._estimate_now()
        if len(state["horizons"]) == len(self._horizons):
            for horizon, saved in zip(self._horizons, state["horizons"], strict=True):
                horizon.restore(saved)
        if "history" in state:  # absent in states from before the regressions
            self.history.restore(**state["history"])
            self.set_fit(None if state["fit"] is None else Fit.from_state(state["fit"]))
        unit = float(state.get("unit", self.unit))  # absent in older states
        if not 0 < unit < math.inf:
            raise ValueError(f"the unit {unit}")
        if unit != self.unit:
            self._convert(unit)

    def _convert(self, unit: float) -> None:
        """Convert the loads, levels and errors of another `unit`, and drop the fit of its levels."""
        floor = _floor(unit)

        def level(before: float) -> float:
            return math.log(max(math.exp(before) - floor, 0.0) + self._floor)

        self._seen.map(1.0, math.log(unit / self.unit))
        self._daily.map(level)
        self._weekly.map(level)
        self.history.map(level)
        for horizon in self._horizons:
            horizon.change_floor(floor, self._floor)
        self.set_fit(None)
        if self._end > -math.inf:
            self._estimate_now()


def _floor(unit: float) -> float:
    return max(FLOOR * unit, 1e-9)


def _at(levels: tuple[float, ...], place: float) -> float:
    """Return the level at a fractional index, by linear interpolation."""
    low = math.floor(place)
    return levels[low] + (place - low) * (levels[low + 1] - levels[low])


def _between(horizon: float) -> tuple[int, int, float]:
    """Return the indices of the next shorter and the next longer of `HORIZONS`, and the logarithmic position
    of `horizon` between these two, 0 to 1. Beyond the shortest or the longest, both indices are the same.
    """
    if horizon <= HORIZONS[0]:
        return 0, 0, 0.0
    for i in range(len(HORIZONS) - 1):
        if horizon <= HORIZONS[i + 1]:
            inside = math.log(horizon / HORIZONS[i]) / math.log(HORIZONS[i + 1] / HORIZONS[i])
            return i, i + 1, inside
    return len(HORIZONS) - 1, len(HORIZONS) - 1, 0.0
