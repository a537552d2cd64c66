"""A mixture of forecasts at one horizon: each forecast learns its errors, and its weight follows its recent
pinball loss.
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
SCALE_MEMORY = 1_800.0
"""Seconds over which the volatility is measured: bursts come in clusters of minutes."""
LEAST_SCALE = 0.01
"""Least volatility of the logarithm: 1 % of the load is far less than one replica."""
LONGEST = 300.0
"""Most seconds that a single forecast stands for when readings are far apart."""
SURPRISE = 4.0
"""Most multiple of the volatility at which an error counts for the volatility: a step of the load is not
volatility."""
FIRST_SCALE = 0.15
MOST_SCALE = 1.5
"""Largest volatility of the logarithm: the last values do not predict a load that varies more."""
MOST_BIAS = 1.0
"""Most standard deviations by which a forecast's median error is corrected."""
HELD_SECONDS = 120.0
"""Least seconds for which replicas for a forecast are kept; `HOLD_SECONDS` of the stabilization."""
PRIOR = 60.0
"""Weight of the prior in errors: an hour of errors, one a minute."""
SHARPNESS = 6.0
"""Exponent of a forecast's loss relative to the least loss: a forecast with 12 % more loss has half the
weight."""
UNKNOWN_LOSS = 1.1
"""Loss of a forecast without a value, relative to the loss of the last value. So its weight is small when it
begins to have values, and does not depend on its few errors."""
REFRESH = 16
"""Errors between computations of the quantiles, which change slowly."""
USUAL_SCALE = 0.2
"""Volatility at which the effective risk is the configured risk. The requests that an additional replica
saves are in proportion to the probability that exactly this replica is needed, which falls as the errors
become wider. So the effective risk is less for a calm load and more for a volatile load."""
RISK_LIMITS = (0.1, 20.0)
"""Least and most multiple of the configured risk."""
MOST_RISK = 0.5
"""The upper quantile is at least the median."""
LEAST_CHANGE = 0.2
"""Share of the risk factor: smaller changes do not compute the quantiles again."""
CAP_SHARE = 0.2
"""Share of the risk that bounds the upper quantile: the bound is the quantile of the unscaled errors that
this share of the risk exceeds. Without it, volatility times a rare error of calm hours is several times the
largest error."""
CAP_UNIT = 0.4
"""Unit of the histogram of unscaled errors, of the logarithm: its last bin is 25 times the forecast."""
SHARES = (0.1, 0.5)
"""Lower quantile and median of the band; the risk determines the upper quantile."""


@dataclass(slots=True)
class _Pending:
    due: float
    seconds: float
    """Seconds since the previous forecast, which the weight of its errors is in proportion to."""
    scale: float
    points: tuple[float, ...]
    mixed: float
    """Logarithm of the load by the mixture, without its own error."""
    central: float
    """Logarithm of the load by the mixture for the median."""
    held: float
    """The highest `mixed` of the last minutes."""


class Horizon:
    """Forecasts of the logarithm of the load `seconds` ahead."""

    def __init__(
        self, seconds: float, names: Sequence[str], share: float, priors: Sequence[float] = ()
    ) -> None:
        """Start without knowledge.

        Args:
            seconds: of the horizon.
            names: of the forecasts in the mixture; each but the first may be NaN while it has no value.
            share: the upper quantile, 0 to 1.
            priors: weight of each forecast relative to forecasts of the same loss; empty: equal weights.
        """
        self.seconds = seconds
        self.names = tuple(names)
        self.share = share
        self._priors = tuple(priors) or (1.0,) * len(self.names)
        self.stride = max(5.0, seconds / 8)
        memory = MEMORY / self.stride
        self._errors = [DecayedHistogram(memory, PRIOR) for _ in names]
        """The same for each forecast at first."""
        self._losses = [0.0] * len(names)
        self._loss_seconds = [0.0] * len(names)
        self._central_losses = [0.0] * len(names)
        """Absolute errors: the best forecast of the extremes need not be the best of the median."""
        self._errors_of_central = DecayedHistogram(memory, PRIOR)
        self._errors_when_held = DecayedHistogram(memory, PRIOR)
        """Errors of the highest forecast of the last minutes, because its replicas are still kept."""
        self._unscaled_errors_when_held = DecayedHistogram(memory, PRIOR)
        """The same errors in `CAP_UNIT` instead of the volatility."""
        self._held: deque[tuple[float, float]] = deque()
        self._scale = FIRST_SCALE
        self._spread = self._mean = 0.0
        """Mean absolute error of the mixture and mean load of the last day, so that the risk of calm hours
        is at least that of the day."""
        self._pending: deque[_Pending] = deque()
        self._next = 0.0
        self._since_refresh = 0
        self._uppers = [self._errors[0].quantile(share)] * len(names)
        self._middles = [_bias(self._errors[0])] * len(names)
        self._weights = [1.0 / len(names)] * len(names)
        self._central_weights = [1.0 / len(names)] * len(names)
        self._is_known = [True] * len(names)
        """Whether each forecast had a value in the last one that was learned from."""
        self._shifts = (0.0, 0.0, 0.0)
        self._most_shift = math.inf
        self._risk_factor = 1.0
        self._refresh_shifts()

    def forecast(self, points: Sequence[float]) -> tuple[float, float, float]:
        """Return the 10 % quantile, the median and the upper quantile by the logarithm of each forecast."""
        low, median, high = self._shifts
        scale = self._scale
        mixed, central = self._mixed(points)
        upper = min(scale * high, max(self._most_shift, scale * median))
        return (central + scale * low, central + scale * median, mixed + upper)

    def quantile(self, points: Sequence[float], share: float) -> float:
        """Return any quantile by the mixture's own errors, independent of the risk."""
        _, central = self._mixed(points)
        return central + self._scale * self._errors_of_central.quantile(share)

    def is_due(self, time: float) -> bool:
        """Return whether forecasts at `time` are to be remembered, once in a `stride`."""
        return time >= self._next

    def advance(self, time: float, level: float, points: Sequence[float], weight: float) -> None:
        """Learn from the logarithm of the load at `time`, and remember the forecasts of that time if they are
        due.
        """
        pending = self._pending
        while pending and pending[0].due <= time:
            self._learn(pending.popleft(), level, weight)
        if self.is_due(time):
            seconds = min(max(time - self._next + self.stride, self.stride), LONGEST)
            self._next = time + self.stride
            mixed, central = self._mixed(points)
            held = self._highest(time, mixed)
            pending.append(
                _Pending(time + self.seconds, seconds, self._scale, tuple(points), mixed, central, held)
            )

    def _highest(self, time: float, mixed: float) -> float:
        """Return the highest forecast of the last minutes, including `mixed`."""
        held, oldest = self._held, time - max(HELD_SECONDS, self.seconds)
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
                self._refresh_shifts()  # the rest is as it was

    def start_again(self) -> None:
        """Discard the pending forecasts: the clock was set, so their times are unknown."""
        self._pending.clear()
        self._held.clear()
        self._next = 0.0

    def weights(self) -> dict[str, float]:
        """Return the share of each forecast in the mixture."""
        return dict(zip(self.names, self._weights, strict=True))

    def state(self) -> dict[str, Any]:
        """Return the learned state for JSON."""
        return {
            "errors": [_rounded(errors.state()) for errors in self._errors],
            "mixture": _rounded(self._errors_of_central.state()),
            "held": _rounded(self._errors_when_held.state()),
            "heldUnscaled": _rounded(self._unscaled_errors_when_held.state()),
            "spread": self._spread,
            "mean": self._mean,
            "losses": list(self._losses),
            "centralLosses": list(self._central_losses),
            "lossSeconds": list(self._loss_seconds),
            "scale": self._scale,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a result of `state`; forecasts added since then, at the end, begin without errors."""
        count = len(state["errors"])
        if count > len(self.names):
            return
        for errors, saved in zip(self._errors, state["errors"], strict=False):
            errors.restore(saved)
        self._errors_of_central.restore(state["mixture"])
        self._errors_when_held.restore(state["held"])
        self._unscaled_errors_when_held.restore(state.get("heldUnscaled", ()))  # absent in older states
        self._spread, self._mean = float(state["spread"]), float(state["mean"])
        # Older states have no central losses: then they begin as the losses.
        losses, central = state["losses"], state.get("centralLosses", state["losses"])
        self._losses, self._central_losses = self._whole(losses), self._whole(central)
        self._loss_seconds = self._whole(state["lossSeconds"])
        self._scale = float(state["scale"])
        self._since_refresh = REFRESH
        self._refresh()

    def _whole(self, saved: Sequence[float]) -> list[float]:
        """Return the saved value of each forecast, and 0 for forecasts added later."""
        return [*map(float, saved), *[0.0] * len(self.names)][: len(self.names)]

    def _upper_share(self) -> float:
        """Return the upper quantile by the risk at the current volatility."""
        low, high = RISK_LIMITS
        width = max(self._scale, self._spread / self._mean if self._mean > 0 else 0.0)
        risk = (1 - self.share) * min(max(width / USUAL_SCALE, low), high)
        return 1 - min(risk * self._risk_factor, MOST_RISK)

    def _mixed(self, points: Sequence[float]) -> tuple[float, float]:
        """Return the logarithm of the load by the mixture, and by the mixture for the median."""
        total = value = central_total = central_value = 0.0
        scale = self._scale
        for point, middle, weight, central_weight in zip(
            points, self._middles, self._weights, self._central_weights, strict=True
        ):
            if point == point:  # noqa: PLR0124 NaN alone differs from itself
                corrected = point + scale * middle
                total += weight
                value += weight * corrected
                central_total += central_weight
                central_value += central_weight * corrected
        return (
            value / total if total > 0 else points[0],
            central_value / central_total if central_total > 0 else points[0],
        )

    def _learn(self, pending: _Pending, level: float, weight: float) -> None:
        share, scale = self.share, pending.scale
        decay = math.exp(-pending.seconds / LOSS_MEMORY)
        weight *= pending.seconds / self.stride
        errors, uppers, middles, known = self._errors, self._uppers, self._middles, self._is_known
        losses, central_losses = self._losses, self._central_losses
        unknown = unknown_off = 0.0
        for i, point in enumerate(pending.points):
            known[i] = point == point  # noqa: PLR0124 NaN alone differs from itself
            if known[i]:
                error = level - point
                beyond = error - scale * uppers[i]
                loss = share * beyond if beyond > 0 else (share - 1) * beyond
                errors[i].add(error / scale, weight)
                off = abs(error - scale * middles[i])
                if i == 0:
                    unknown, unknown_off = UNKNOWN_LOSS * loss, UNKNOWN_LOSS * off
            else:
                loss, off = unknown, unknown_off
            losses[i] = decay * losses[i] + weight * loss
            central_losses[i] = decay * central_losses[i] + weight * off
        self._loss_seconds = [decay * seconds + weight for seconds in self._loss_seconds]
        error = level - pending.mixed
        self._errors_of_central.add((level - pending.central) / scale, weight)
        self._errors_when_held.add((level - pending.held) / scale, weight)
        self._unscaled_errors_when_held.add((level - pending.held) / CAP_UNIT, weight)
        daily = 1 - math.exp(-pending.seconds / MEMORY)
        load = math.exp(level)
        self._spread += daily * (abs(load - math.exp(pending.mixed)) - self._spread)
        self._mean += daily * (load - self._mean)
        gain = 1 - math.exp(-pending.seconds / SCALE_MEMORY)
        surprise = min(abs(error), SURPRISE * self._scale)
        scaled = self._scale + gain * (surprise - self._scale)
        self._scale = min(max(scaled, LEAST_SCALE), MOST_SCALE)
        self._since_refresh += 1
        if self._since_refresh >= REFRESH:
            self._refresh()

    def _refresh(self) -> None:
        self._since_refresh = 0
        self._uppers = [errors.quantile(self.share) for errors in self._errors]
        self._middles = [_bias(errors) for errors in self._errors]
        self._weights = self._weighed(self._losses) or self._weights
        self._central_weights = self._weighed(self._central_losses) or self._central_weights
        self._refresh_shifts()

    def _refresh_shifts(self) -> None:
        """Compute the quantiles of the mixture's errors, of which the upper one depends on the risk."""
        low, median = (self._errors_of_central.quantile(share) for share in SHARES)
        share = self._upper_share()
        upper = self._errors_when_held.quantile(share)
        self._shifts = (low, median, max(upper, median))
        self._most_shift = CAP_UNIT * self._unscaled_errors_when_held.quantile(1 - CAP_SHARE * (1 - share))

    def _weighed(self, losses: Sequence[float]) -> list[float]:
        """Return the weights of the forecasts by their losses; empty without any loss."""
        means = [
            loss / seconds if seconds > 0 else math.inf
            for loss, seconds in zip(losses, self._loss_seconds, strict=True)
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
    """Return the standard deviations by which a forecast is corrected."""
    return min(max(errors.quantile(0.5), -MOST_BIAS), MOST_BIAS)


def _rounded(weights: list[float]) -> list[float]:
    return [round(weight, 4) for weight in weights]
