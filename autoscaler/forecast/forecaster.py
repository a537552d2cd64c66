"""The load of one target in the coming minutes, from its last readings and the days before.

Everything is in logarithms of the load plus a floor, so that no forecast is negative and errors are relative.
"""

import datetime as dt
import math
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from autoscaler.decision import Band
from autoscaler.forecast.fit import Fit, path, rise
from autoscaler.forecast.histogram import DecayedHistogram
from autoscaler.forecast.history import History
from autoscaler.forecast.horizon import MOST_RISK, Horizon
from autoscaler.forecast.profile import BIN, DAY, WEEK, Profile

HORIZONS = (20.0, 60.0, 180.0, 540.0)
"""Seconds: between them quantiles are interpolated, so that a start-up time that is learned changes nothing else."""
WAIT = 2.0
"""Seconds that work may wait, at least: replicas of rate r serve r x (T + 2 s) of what arrives in any T
seconds in time."""
SPANS = (5.0, 10.0, 20.0, 40.0, 120.0)
"""Seconds over which load is summed; the span that asks for the highest rate counts."""
BEGIN = 120.0
"""Seconds of readings before errors are learned from: averages begin with whatever the first reading was."""
SLOW = 90.0
"""Seconds of the slow average, which the noise of a reading does not move."""
HOUR = 3600.0
"""Seconds of the average that says how large a service is before there are days of it."""
TRENDS = (30.0, 150.0)
"""Seconds of the two spans of which each is compared with the span before it: a ramp rises in both, a step
soon in the longer one alone, noise in neither for long. The smaller trend counts."""
TREND_LIMIT = 0.3
"""A trend is followed by a third of the load at most: it was measured over minutes."""
STEADY_SPAN = 40.0
"""Seconds of a span by which a load that rises steadily is recognised: over three of them, and two changes,
that are alike."""
STEADY_SPANS = 4
STEADY_SHARE = 0.5
"""Of the larger of the two changes: what the smaller one is at least, where a rise is steady; a step's are
not alike for long."""
STEADY_RISE = 0.1
"""Of the load: what a rise is at least; chance makes the loads of two spans differ by a few percent."""
STEADY_LIMIT = 1.0
"""A steady rise is followed to 2.7 times the load at most."""
KEPT = 2 * TRENDS[-1]
"""Seconds of readings that are kept one by one."""
SHIFT = 3600.0
"""Seconds by which the shape of the day may be off: clocks change twice a year, and `prediction.timeZone` may
not say where."""
SEEN_MEMORY = 2 * DAY
"""Seconds after which a load weighs 1/e in the distribution of all loads."""
SEEN_STRIDE = 10.0
"""Seconds between loads that are counted in it."""
SEEN_SHARE = 0.2
"""Of the risk: how rarely the load was higher than the upper quantile may be, unless the load is there
already or rises."""
MOST_WEIGHT = 2.0
"""Weight of an error at more than the usual load, which more requests suffer from; one event must not be all
that is known."""
DRIFT = 2
NAMES = ("last", "average", "drift", "daily", "daily-1h", "daily+1h", "weekly", "usual", "fitted", "quantile")
"""New ones come at the end: what was kept of the others is found by its place."""
REGRESSED = 0.1
"""Weight of a regression relative to forecasts that lose as much: one that adds nothing thins out those that
are right."""
PRIORS = (1.0,) * (len(NAMES) - 2) + (REGRESSED,) * 2
FLOOR = 0.25
"""Of a replica's capacity: changes of a load below that need no replica."""
SET_BACK = 60.0
"""Seconds by which a reading may be older than the last one, and is passed over; if it is older, the clock
was set back."""
LONGEST_GAP = 3600.0
"""Seconds without readings after which the averages start again."""


class Forecaster:
    """One series of load.

    Args:
        unit: load per second that a difference of is worth knowing: one replica's capacity.
        share: the upper quantile that is wanted, 0 to 1.
        zone: in which days and weeks have their shape.
    """

    def __init__(self, unit: float, share: float, zone: ZoneInfo | None = None) -> None:
        self.wait = WAIT
        """Seconds that work may wait."""
        self._unit = max(unit, 1e-9)
        self._floor = max(FLOOR * unit, 1e-9)
        self._seen = DecayedHistogram(SEEN_MEMORY / SEEN_STRIDE, 1e-3)
        """Logarithms of the load, in capacities of a replica, wherever the load was."""
        self._seen_until = -math.inf
        self._share, self._risk_factor = share, 1.0
        self._zone = zone
        self._offset, self._offset_until = 0.0, -math.inf
        self._horizons = [Horizon(seconds, NAMES, share, PRIORS) for seconds in HORIZONS]
        self._daily, self._weekly = Profile(DAY), Profile(WEEK)
        self._end = -math.inf
        self._recent: deque[tuple[float, float]] = deque()
        """Amount and seconds of the readings within `KEPT`."""
        self._covered = self._known = 0.0
        """Seconds of readings since the averages began."""
        self._last = self._slow = math.nan
        self._minute = self._slope = self._rise = self._rise_limit = 0.0
        """Load of the last minute, and the change of its logarithm per second."""
        self._usual = math.nan
        """Mean load of the last days."""
        self._hourly = 0.0
        """Mean load of the last hour."""
        self._bin, self._bin_amount, self._bin_seconds = -1, 0.0, 0.0
        self.history = History()
        """By local time: an hour that comes twice counts once, and one that is left out was as on the day before."""
        self._fit: Fit | None = None
        self._path: tuple[float, tuple[float, ...]] = (0.0, ())
        """Local seconds of the middle of the last bin, and the levels by regression from there on, a bin apart."""
        self._rise_quantile = math.nan
        """Upper quantile, by regression, of the change of the logarithm per bin."""

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
        """Accept `factor` times the risk that `share` stands for from now on."""
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
        if end - self._end > LONGEST_GAP:
            self._slow, self._known = math.nan, 0.0
            self._recent.clear()
            self._covered = 0.0
        self._known += seconds
        self._end = end
        self._smooth(seconds, amount)
        self._fill_bins(end, seconds, amount)
        if self._known < BEGIN:
            return
        level = math.log(self._last + self._floor)
        weight = 1.0
        if self._usual > 0:
            weight = min(max(self._last / self._usual, 0.1), MOST_WEIGHT)
        if end >= self._seen_until:
            self._seen_until = end + SEEN_STRIDE
            self._seen.add(math.log(max(self._last, 1e-9) / self._unit), weight)
        for horizon in self._horizons:
            horizon.advance(end, level, self._points(horizon.seconds), weight)

    def band(self, horizon: float) -> Band:
        """Return the forecast of the load `horizon` seconds after the last reading."""
        low, high, inside = _between(horizon)
        first, second = self._horizons[low], self._horizons[high]
        values = first.forecast(self._points(first.seconds))
        if high != low:
            others = second.forecast(self._points(second.seconds))
            values = tuple(a + inside * (b - a) for a, b in zip(values, others, strict=True))  # type: ignore[assignment]
        seen_risk = min(SEEN_SHARE * (1 - self._share) * self._risk_factor, MOST_RISK)
        highest = max(
            math.exp(self._seen.quantile(1 - seen_risk)) * self._unit, self.last * math.exp(TREND_LIMIT)
        )
        upper_level = min(values[2], math.log(highest + self._floor))
        upper_level = max(
            upper_level, values[1], self._points(horizon)[DRIFT]
        )  # a ramp that began now is in no error yet
        lower, median, upper = (
            max(math.exp(value) - self._floor, 0.0) for value in (values[0], values[1], upper_level)
        )
        return Band(horizon, lower, median, upper)

    def quantile(self, horizon: float, share: float) -> float:
        """Return any quantile of the load `horizon` seconds after the last reading, as it is expected: no
        risk is in it.
        """
        low, high, inside = _between(horizon)
        first, second = (
            each.quantile(self._points(each.seconds), share)
            for each in (self._horizons[low], self._horizons[high])
        )
        return max(math.exp(first + inside * (second - first)) - self._floor, 0.0)

    def risen(self, horizon: float) -> float:
        """Return the load `horizon` seconds after the last reading if it goes on rising steadily; 0 if it does not."""
        if self._rise_limit < STEADY_LIMIT:
            return 0.0
        return min(
            self._minute + self._rise * (horizon + TRENDS[0] / 2), self._minute * math.exp(STEADY_LIMIT)
        )

    def weights(self, horizon: float) -> dict[str, float]:
        """Return the share of each forecast in the mixture near a horizon."""
        return self._horizons[_between(horizon)[0]].weights()

    def warm(self, history: Iterable[tuple[float, float, float]]) -> None:
        """Take readings of the past (end, seconds, amount), the oldest first."""
        for end, seconds, amount in history:
            self.observe(end, seconds, amount)

    def _smooth(self, seconds: float, amount: float) -> None:
        self._recent.append((amount, seconds))
        self._covered += seconds
        while len(self._recent) > 1 and self._covered - self._recent[0][1] >= KEPT:
            self._covered -= self._recent.popleft()[1]
        self._last = _serving_rate(self._recent, self.wait)
        self._minute, self._slope = _trend(self._recent, self._floor)
        self._rise, self._rise_limit = _steady_rise(self._recent)
        if math.isnan(self._slow):
            self._slow = self._last
            return
        before = self._slow
        rate = amount / seconds
        self._hourly += (1 - math.exp(-seconds / HOUR)) * (rate - self._hourly)
        self._slow += (1 - math.exp(-seconds / SLOW)) * (rate - before)
        if math.isnan(self._usual):
            self._usual = rate
        self._usual += (1 - math.exp(-seconds / (2 * DAY))) * (rate - self._usual)

    def _fill_bins(self, end: float, seconds: float, amount: float) -> None:
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

    def take_fit(self, fitted: Fit | None) -> None:
        """Go on with the regressions that were fitted to `history`; None: it does not determine any."""
        self._fit = fitted
        self._plan()

    def _plan(self) -> None:
        """Compute what the regressions say of the bins after the last one."""
        self._path, self._rise_quantile = (0.0, ()), math.nan
        if self._fit is not None and len(self.history):
            levels = self.history.levels
            self._path = ((self.history.end - 0.5) * BIN, path(self._fit, levels))
            self._rise_quantile = rise(self._fit, levels)

    def _points(self, ahead: float) -> tuple[float, ...]:
        """Return each forecast of the logarithm of the load, in the order of `NAMES`."""
        floor = self._floor
        last, slow = math.log(self._last + floor), math.log(self._slow + floor)
        now = self._local(self._end)
        then = now + ahead
        daily = self._daily.at
        base = daily(now)
        trend = min(max(self._slope * (ahead + TRENDS[0] / 2), -TREND_LIMIT), TREND_LIMIT)
        if self._rise > 0:
            steady = math.log(
                (self._minute + self._rise * (ahead + TRENDS[0] / 2) + floor) / (self._minute + floor)
            )
            trend = max(trend, min(steady, self._rise_limit))
        weekly = self._weekly.at
        return (
            last,
            slow,
            math.log(self._minute + floor) + trend,
            slow + daily(then) - base,
            slow + daily(then - SHIFT) - daily(now - SHIFT),
            slow + daily(then + SHIFT) - daily(now + SHIFT),
            slow + weekly(then) - weekly(now),
            daily(then),
            self._fitted(slow, now, ahead),
            slow + self._rise_quantile * ahead / BIN,
        )

    def _fitted(self, slow: float, now: float, ahead: float) -> float:
        """Return the forecast by autoregression, from `now` in local seconds; NaN where there is none so far ahead."""
        start, levels = self._path
        here = (now - start) / BIN
        there = here + ahead / BIN
        if here < 0 or there >= len(levels) - 1:
            return math.nan
        return slow + _at(levels, there) - _at(levels, here)

    def _local(self, time: float) -> float:
        """Return local seconds, of which 00:00 is a multiple of a day."""
        if self._zone is None:
            return time
        if time >= self._offset_until or time < self._offset_until - BIN:
            moment = dt.datetime.fromtimestamp(time, self._zone)
            offset = moment.utcoffset()
            self._offset = offset.total_seconds() if offset is not None else 0.0
            self._offset_until = (time // BIN + 1) * BIN
        return time + self._offset

    def state(self) -> dict[str, Any]:
        """Return what was learned, for JSON."""
        return {
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
        """Take what `state` returned."""
        self._usual = math.nan if state["usual"] is None else float(state["usual"])
        self._seen.restore(state["seen"])
        self._daily.restore(**state["daily"])
        self._weekly.restore(**state["weekly"])
        if len(state["horizons"]) == len(self._horizons):
            for horizon, saved in zip(self._horizons, state["horizons"], strict=True):
                horizon.restore(saved)
        if "history" in state:  # what was kept before there were regressions has none
            self.history.restore(**state["history"])
            self.take_fit(None if state["fit"] is None else Fit.of(state["fit"]))


def _serving_rate(readings: deque[tuple[float, float]], wait: float) -> float:
    """Return the rate that serves what arrived in the last readings within `wait` seconds."""
    amount = seconds = best = 0.0
    span = 0
    for part, length in reversed(readings):
        amount += part
        seconds += length
        if seconds >= SPANS[span] - 0.5:
            best = max(best, amount / (seconds + wait))
            while span < len(SPANS) and seconds >= SPANS[span] - 0.5:
                span += 1
            if span == len(SPANS):
                return best
    return best if best > 0 else amount / max(seconds, 1.0)


def _trend(readings: deque[tuple[float, float]], floor: float) -> tuple[float, float]:
    """Return the load of the first of `TRENDS`, and the smaller trend of them: change of the logarithm per second."""
    short, long = TRENDS
    marks = (short, 2 * short, long, 2 * long)
    sums: list[tuple[float, float]] = []
    amount = seconds = 0.0
    for part, length in reversed(readings):
        amount += part
        seconds += length
        while len(sums) < len(marks) and seconds >= marks[len(sums)] - 0.5:
            sums.append((amount, seconds))
    if not sums:
        return amount / max(seconds, 1.0), 0.0
    level = sums[0][0] / sums[0][1]
    if len(sums) < len(marks):
        return level, 0.0
    slopes = []
    for (late, half), (whole, all_seconds) in ((sums[0], sums[1]), (sums[2], sums[3])):
        early = max(whole - late, 0.0) / max(all_seconds - half, 1.0)
        slopes.append((math.log(late / half + floor) - math.log(early + floor)) / (0.5 * all_seconds))
    if slopes[0] * slopes[1] <= 0:
        return level, 0.0
    return level, min(slopes, key=abs)


def _steady_rise(readings: deque[tuple[float, float]]) -> tuple[float, float]:
    """Return the change of the load per second where it rises evenly, else 0, and how far to follow it (logarithm)."""
    rates: list[float] = []
    amount = seconds = 0.0
    for part, length in reversed(readings):
        amount += part
        seconds += length
        if seconds >= STEADY_SPAN - 0.5:
            rates.append(amount / seconds)
            if len(rates) == STEADY_SPANS:
                break
            amount = seconds = 0.0
    changes = [late - early for late, early in pairwise(rates)]
    for count, limit in ((STEADY_SPANS - 1, STEADY_LIMIT), (STEADY_SPANS - 2, TREND_LIMIT)):
        least, most = min(changes[:count], default=0.0), max(changes[:count], default=0.0)
        is_steady = len(changes) >= count and least > STEADY_SHARE * most > 0
        if is_steady and rates[0] > (1 + STEADY_RISE) * rates[count]:
            return least / STEADY_SPAN, limit
    return 0.0, 0.0


def _at(levels: tuple[float, ...], place: float) -> float:
    low = math.floor(place)
    return levels[low] + (place - low) * (levels[low + 1] - levels[low])


def _between(horizon: float) -> tuple[int, int, float]:
    """Return the horizons beside one, and how far it is from the first to the second, by logarithm."""
    if horizon <= HORIZONS[0]:
        return 0, 0, 0.0
    for i in range(len(HORIZONS) - 1):
        if horizon <= HORIZONS[i + 1]:
            inside = math.log(horizon / HORIZONS[i]) / math.log(HORIZONS[i + 1] / HORIZONS[i])
            return i, i + 1, inside
    return len(HORIZONS) - 1, len(HORIZONS) - 1, 0.0
