"""A mixture of forecasts at one horizon, with the quantiles of its errors.

A level is the logarithm of the load plus a floor, so that errors are relative; forecasts are of levels. Two
mixtures weigh the same forecasts by their recent losses: the mixture for the upper quantile by pinball loss,
and the mixture for the median by absolute error. The volatility is the mean absolute error of the last half
hour, and errors are stored as multiples of it, so that the quantiles follow calm and volatile hours.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autoscaler.forecast.histogram import DecayedHistogram

MEMORY = 86_400.0
"""Seconds after which an error weighs 1/e: a day, so that errors of each hour of the day count."""
LOSS_MEMORY = 6 * 3600.0
"""Seconds after which a loss weighs 1/e: a forecast that becomes worse loses its weight within hours."""
VOLATILITY_MEMORY = 1_800.0
"""Seconds after which an error weighs 1/e in the volatility: bursts come in clusters of minutes."""
LEAST_VOLATILITY = 0.01
"""Least volatility: 1 % of the load is far less than one replica."""
LONGEST_SPAN = 300.0
"""Most seconds by which the errors of one forecast are weighted when readings are far apart."""
MOST_SURPRISE = 4.0
"""Multiple of the volatility at which an error is cut before it changes the volatility: a step of the load is
not volatility."""
FIRST_VOLATILITY = 0.15
"""Volatility before the first error."""
MOST_VOLATILITY = 1.5
"""Largest volatility: the last values do not predict a load that varies more."""
MOST_BIAS = 1.0
"""Most multiple of the volatility by which a forecast is corrected for its median error."""
HOLD_SECONDS = 120.0
"""Least seconds for which replicas for a forecast are kept, as `HOLD_SECONDS` of `policy.stabilization`."""
PRIOR = 60.0
"""Weight of the prior distribution of errors, in errors: an hour of them, one a minute."""
STRIDES = 8
"""Remembered forecasts within the horizon."""
LEAST_STRIDE = 5.0
"""Least seconds between remembered forecasts."""
SHARPNESS = 6.0
"""Exponent of a forecast's loss relative to the least loss: a forecast with 12 % more loss has half the
weight."""
UNKNOWN_LOSS = 1.1
"""Loss of a forecast without a value, relative to the loss of the last value. So its weight is small when it
begins to have values, and does not depend on its few errors."""
REFRESH = 16
"""Errors that are learned between computations of the quantiles, which change slowly."""
USUAL_VOLATILITY = 0.2
"""Volatility at which the effective risk is the configured risk. The requests that an additional replica
saves are in proportion to the probability that exactly this replica is needed, which falls as the errors
become wider. So the effective risk is less for a calm load and more for a volatile load."""
RISK_LIMITS = (0.1, 20.0)
"""Least and most multiple of the configured risk."""
MOST_RISK = 0.5
"""Largest effective risk, so that the upper quantile is at least the median."""
LEAST_CHANGE = 0.2
"""Least relative change of the risk factor for which the quantiles are computed again."""
CAP_SHARE = 0.2
"""Ratio to the effective risk of the share of unscaled errors that exceed the bound of the upper quantile.
Without a bound, volatility times a rare error of calm hours is several times the largest error."""
CAP_UNIT = 0.4
"""Unit of the histogram of unscaled errors, a difference of levels: its last bin is 25 times the forecast."""
SHARES = (0.1, 0.5)
"""Shares of the lower quantile and the median of the band; the risk determines that of the upper quantile."""


@dataclass(slots=True)
class _Pending:
    """Forecasts of one time, until the load of this time is known."""

    due: float
    """The forecast time, in Unix seconds."""
    seconds: float
    """Seconds since the previous remembered forecasts; the weight of the errors is in proportion to them."""
    volatility: float
    """At the time of the forecasts."""
    points: tuple[float, ...]
    """The level by each forecast; NaN without a value."""
    mixed: float
    """The level by the mixture for the upper quantile, before the upper quantile of its errors is added."""
    median: float
    """The level by the mixture for the median."""
    held: float
    """The highest `mixed` while replicas for it are kept."""


class Horizon:
    """Forecasts of the level `seconds` ahead."""

    def __init__(
        self, seconds: float, names: Sequence[str], share: float, priors: Sequence[float] = ()
    ) -> None:
        """Start without knowledge.

        Args:
            seconds: of the horizon.
            names: of the forecasts in the mixture; each but the first may be NaN while it has no value.
            share: of the upper quantile, 0 to 1: 1 less the configured risk.
            priors: weight of each forecast relative to others of the same loss; empty: equal weights.
        """
        self.seconds = seconds
        self.names = tuple(names)
        self.share = share
        self._priors = tuple(priors) or (1.0,) * len(self.names)
        self.stride = max(LEAST_STRIDE, seconds / STRIDES)
        """Seconds between remembered forecasts."""
        memory = MEMORY / self.stride
        self._errors = [DecayedHistogram(memory, PRIOR) for _ in names]
        """Errors of each forecast. All errors but the unscaled ones are multiples of the volatility."""
        self._losses = [0.0] * len(names)
        """Decayed sum of each forecast's pinball losses for the upper quantile."""
        self._loss_weights = [0.0] * len(names)
        """Decayed sum of the weights of these losses."""
        self._median_losses = [0.0] * len(names)
        """The same for absolute errors: the best forecast of extremes need not be the best of the median."""
        self._errors_of_median = DecayedHistogram(memory, PRIOR)
        self._errors_when_held = DecayedHistogram(memory, PRIOR)
        """Errors of the highest forecast of the last minutes, because its replicas are still kept."""
        self._unscaled_errors_when_held = DecayedHistogram(memory, PRIOR)
        """The same errors as multiples of `CAP_UNIT` instead of the volatility."""
        self._held: deque[tuple[float, float]] = deque()
        """Time and `mixed` of the last minutes: of those only the ones that no later one exceeds."""
        self._volatility = FIRST_VOLATILITY
        self._mean_error = self._mean_load = 0.0
        """Mean absolute error of the mixture and mean load of the last day, as loads and not levels. By them
        the risk of calm hours is at least that of the day."""
        self._pending: deque[_Pending] = deque()
        self._next = 0.0
        """Time at which the next forecasts are remembered, in Unix seconds."""
        self._since_refresh = 0
        # From here on the results of `_refresh`; at first the errors of all forecasts are the prior.
        self._upper_errors = [self._errors[0].quantile(share)] * len(names)
        self._biases = [_bias(self._errors[0])] * len(names)
        self._weights = [1.0 / len(names)] * len(names)
        self._median_weights = [1.0 / len(names)] * len(names)
        self._is_known = [True] * len(names)
        """Whether each forecast had a value in the last `_Pending` that was learned from."""
        self._error_quantiles = (0.0, 0.0, 0.0)
        """Lower quantile, median and upper quantile of the mixtures' errors."""
        self._upper_bound = math.inf
        """Bound of the upper quantile of the errors, as a difference of levels: see `CAP_SHARE`."""
        self._risk_factor = 1.0
        self._refresh_error_quantiles()

    def forecast(self, points: Sequence[float]) -> tuple[float, float, float]:
        """Return the levels of the 10 % quantile, the median and the upper quantile.

        `points` are the levels by each forecast, in the order of `names`; NaN for one without a value.
        """
        low_error, median_error, upper_error = (self._volatility * each for each in self._error_quantiles)
        upper_error = min(upper_error, max(self._upper_bound, median_error))
        mixed, median = self._mixed(points)
        return median + low_error, median + median_error, mixed + upper_error

    def quantile(self, points: Sequence[float], share: float) -> float:
        """Return the level of any quantile, independent of the risk, by the errors of the mixture for the
        median.
        """
        _, median = self._mixed(points)
        return median + self._volatility * self._errors_of_median.quantile(share)

    def is_due(self, time: float) -> bool:
        """Whether forecasts at `time`, in Unix seconds, are to be remembered: once in a `stride`."""
        return time >= self._next

    def advance(self, time: float, level: float, points: Sequence[float], weight: float) -> None:
        """Learn from the errors of earlier forecasts of `time`, and remember the forecasts made at `time` if
        they are due.

        Args:
            time: Unix seconds.
            level: of the load at `time`.
            points: the levels by each forecast for `seconds` after `time`; unused if none are due.
            weight: of the errors; 1 at the usual load, more at a higher load.
        """
        pending = self._pending
        while pending and pending[0].due <= time:
            self._learn(pending.popleft(), level, weight)
        if self.is_due(time):
            seconds = min(max(time - self._next + self.stride, self.stride), LONGEST_SPAN)
            self._next = time + self.stride
            mixed, median = self._mixed(points)
            held = self._highest_held(time, mixed)
            pending.append(
                _Pending(time + self.seconds, seconds, self._volatility, tuple(points), mixed, median, held)
            )

    def _highest_held(self, time: float, mixed: float) -> float:
        """Return the highest forecast for which replicas are still kept, including `mixed`."""
        held, oldest = self._held, time - max(HOLD_SECONDS, self.seconds)
        while held and held[-1][1] <= mixed:
            held.pop()
        held.append((time, mixed))
        while held[0][0] < oldest:
            held.popleft()
        return held[0][1]

    def multiply_risk(self, factor: float) -> None:
        """Set the effective risk to `factor` times the configured risk."""
        if abs(factor - self._risk_factor) > LEAST_CHANGE * self._risk_factor:
            self._risk_factor = factor
            if self._since_refresh:
                self._refresh()
            else:
                self._refresh_error_quantiles()  # without new errors only the upper quantile changes

    def start_again(self) -> None:
        """Discard the pending forecasts after the clock was set back: their times are of the old clock."""
        self._pending.clear()
        self._held.clear()
        self._next = 0.0

    def weights(self) -> dict[str, float]:
        """Return the share of each forecast in the mixture."""
        return dict(zip(self.names, self._weights, strict=True))

    def state(self) -> dict[str, Any]:
        """Return the learned state for JSON, with the keys of earlier releases, whose states are restored."""
        return {
            "errors": [_rounded(errors.state()) for errors in self._errors],
            "mixture": _rounded(self._errors_of_median.state()),
            "held": _rounded(self._errors_when_held.state()),
            "heldUnscaled": _rounded(self._unscaled_errors_when_held.state()),
            "spread": self._mean_error,
            "mean": self._mean_load,
            "losses": list(self._losses),
            "centralLosses": list(self._median_losses),
            "lossSeconds": list(self._loss_weights),
            "scale": self._volatility,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a result of `state`; forecasts that were appended since then begin without errors."""
        count = len(state["errors"])
        if count > len(self.names):  # by a release with more forecasts
            return
        for errors, saved in zip(self._errors, state["errors"], strict=False):
            errors.restore(saved)
        self._errors_of_median.restore(state["mixture"])
        self._errors_when_held.restore(state["held"])
        self._unscaled_errors_when_held.restore(state.get("heldUnscaled", ()))  # absent in older states
        self._mean_error, self._mean_load = float(state["spread"]), float(state["mean"])
        # Older states have no losses for the median, which then begin as the losses for the upper quantile.
        losses, median_losses = state["losses"], state.get("centralLosses", state["losses"])
        self._losses, self._median_losses = self._padded(losses), self._padded(median_losses)
        self._loss_weights = self._padded(state["lossSeconds"])
        self._volatility = float(state["scale"])
        self._since_refresh = REFRESH
        self._refresh()

    def change_floor(self, before: float, after: float) -> None:
        """Convert the mean load, volatility and errors, which levels with another floor have given.

        The errors of levels near the mean load change by one factor, and so does the volatility, of which
        most errors are multiples.
        """
        if self._mean_load <= 0:
            return
        mean_load = max(self._mean_load - before, 0.0) + after
        factor = self._mean_load / mean_load
        self._mean_load = mean_load
        self._volatility = min(max(factor * self._volatility, LEAST_VOLATILITY), MOST_VOLATILITY)
        self._unscaled_errors_when_held.map(factor)
        self._losses = [factor * loss for loss in self._losses]
        self._median_losses = [factor * loss for loss in self._median_losses]
        self._refresh()

    def _padded(self, saved: Sequence[float]) -> list[float]:
        """Return the saved value of each forecast, and 0 for forecasts added later."""
        return [*map(float, saved), *[0.0] * len(self.names)][: len(self.names)]

    def _upper_share(self) -> float:
        """Return the share of the upper quantile: 1 less the effective risk at the present volatility, or at
        that of the day if it is larger.
        """
        least, most = RISK_LIMITS
        of_day = self._mean_error / self._mean_load if self._mean_load > 0 else 0.0
        volatility = max(self._volatility, of_day)
        risk = (1 - self.share) * min(max(volatility / USUAL_VOLATILITY, least), most)
        return 1 - min(risk * self._risk_factor, MOST_RISK)

    def _mixed(self, points: Sequence[float]) -> tuple[float, float]:
        """Return the level by the mixture for the upper quantile, and by the mixture for the median."""
        total = mixed = median_total = median = 0.0
        volatility = self._volatility
        for point, bias, weight, median_weight in zip(
            points, self._biases, self._weights, self._median_weights, strict=True
        ):
            if point == point:  # noqa: PLR0124 NaN alone differs from itself
                corrected = point + volatility * bias
                total += weight
                mixed += weight * corrected
                median_total += median_weight
                median += median_weight * corrected
        return (
            mixed / total if total > 0 else points[0],
            median / median_total if median_total > 0 else points[0],
        )

    def _learn(self, pending: _Pending, level: float, weight: float) -> None:
        weight *= pending.seconds / self.stride
        self._learn_forecasts(pending, level, weight)
        self._learn_mixtures(pending, level, weight)
        self._learn_volatility(pending, level)
        self._since_refresh += 1
        if self._since_refresh >= REFRESH:
            self._refresh()

    def _learn_forecasts(self, pending: _Pending, level: float, weight: float) -> None:
        """Learn the error and the losses of each forecast; one without a value has `UNKNOWN_LOSS`."""
        share, volatility = self.share, pending.volatility
        decay = math.exp(-pending.seconds / LOSS_MEMORY)
        errors, upper_errors, biases, known = self._errors, self._upper_errors, self._biases, self._is_known
        losses, median_losses = self._losses, self._median_losses
        unknown_loss = unknown_median_loss = 0.0
        for i, point in enumerate(pending.points):
            known[i] = point == point  # noqa: PLR0124 NaN alone differs from itself
            if known[i]:
                error = level - point
                above_upper = error - volatility * upper_errors[i]
                loss = share * above_upper if above_upper > 0 else (share - 1) * above_upper
                median_loss = abs(error - volatility * biases[i])
                errors[i].add(error / volatility, weight)
                if i == 0:  # the last value
                    unknown_loss, unknown_median_loss = UNKNOWN_LOSS * loss, UNKNOWN_LOSS * median_loss
            else:
                loss, median_loss = unknown_loss, unknown_median_loss
            losses[i] = decay * losses[i] + weight * loss
            median_losses[i] = decay * median_losses[i] + weight * median_loss
        self._loss_weights = [decay * total + weight for total in self._loss_weights]

    def _learn_mixtures(self, pending: _Pending, level: float, weight: float) -> None:
        """Learn the errors of the mixtures, and the mean error and the mean load of the day."""
        held_error = level - pending.held
        self._errors_of_median.add((level - pending.median) / pending.volatility, weight)
        self._errors_when_held.add(held_error / pending.volatility, weight)
        self._unscaled_errors_when_held.add(held_error / CAP_UNIT, weight)
        change = 1 - math.exp(-pending.seconds / MEMORY)
        load = math.exp(level)
        self._mean_error += change * (abs(load - math.exp(pending.mixed)) - self._mean_error)
        self._mean_load += change * (load - self._mean_load)

    def _learn_volatility(self, pending: _Pending, level: float) -> None:
        change = 1 - math.exp(-pending.seconds / VOLATILITY_MEMORY)
        error = min(abs(level - pending.mixed), MOST_SURPRISE * self._volatility)
        volatility = self._volatility + change * (error - self._volatility)
        self._volatility = min(max(volatility, LEAST_VOLATILITY), MOST_VOLATILITY)

    def _refresh(self) -> None:
        self._since_refresh = 0
        self._upper_errors = [errors.quantile(self.share) for errors in self._errors]
        self._biases = [_bias(errors) for errors in self._errors]
        self._weights = self._weights_by(self._losses) or self._weights
        self._median_weights = self._weights_by(self._median_losses) or self._median_weights
        self._refresh_error_quantiles()

    def _refresh_error_quantiles(self) -> None:
        """Compute the quantiles of the mixtures' errors, of which the upper one depends on the risk."""
        low, median = (self._errors_of_median.quantile(share) for share in SHARES)
        share = self._upper_share()
        upper = self._errors_when_held.quantile(share)
        self._error_quantiles = (low, median, max(upper, median))
        self._upper_bound = CAP_UNIT * self._unscaled_errors_when_held.quantile(1 - CAP_SHARE * (1 - share))

    def _weights_by(self, losses: Sequence[float]) -> list[float]:
        """Return the weights of the forecasts, which add up to 1, by their losses; empty without any loss."""
        means = [
            loss / weight if weight > 0 else math.inf
            for loss, weight in zip(losses, self._loss_weights, strict=True)
        ]
        best = min(means)
        if best == math.inf:
            return []
        raw = [
            prior * ((best + 1e-6) / (mean + 1e-6)) ** SHARPNESS if is_known and mean < math.inf else 0.0
            for prior, mean, is_known in zip(self._priors, means, self._is_known, strict=True)
        ]
        total = sum(raw)
        return [value / total for value in raw]


def _bias(errors: DecayedHistogram) -> float:
    """Return the multiple of the volatility by which a forecast is corrected."""
    return min(max(errors.quantile(0.5), -MOST_BIAS), MOST_BIAS)


def _rounded(weights: list[float]) -> list[float]:
    return [round(weight, 4) for weight in weights]
