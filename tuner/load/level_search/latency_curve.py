"""A curve of latency over load through windows at several loads, with its uncertainty. Pure.

The p99 of a single window is noisy: two windows of one load differ by 20 %. Windows at other loads help, as
latency grows with load in few ways:

- Closed loop: with N users latency is (1 + (r N)^k)^(1/k) times the latency without load. Up to 1 / r users
  hardly wait for each other; beyond 1 / r users they share the capacity. The bend is the sharper the greater
  k is, from one queue in front of everything (k = 1: Denning and Buzen, The Operational Analysis of Queueing
  Network Models, 1978, section 4) to the two asymptotes of separate servers. Percentiles grow as means do.
- Open loop: at a rate of s latency is 1 / (1 - (r s)^k) times the latency without load; 1 / r is the
  capacity. One server has k = 1 (M/M/1); of several servers all must be busy before a request waits.

Every (r, k) of a grid is fitted in logarithms and weighted by its likelihood. The curve is their weighted
mean.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np

from tuner.load.windows.samples import Floats

Kind = Literal["closed", "open"]

BENDS = (1.0, 2.0, 4.0, 8.0)
"""Values of k; windows cannot distinguish greater ones."""
UNBENT, STRAIGHT, RATES = 0.03, 10.0, 40
"""Closed loop: r takes RATES values, from UNBENT / highest load (no window is beyond the bend) to STRAIGHT /
lowest load (all windows are)."""
FREE = np.logspace(math.log10(0.9), -3, 24)
"""Open loop: shares of the capacity that the highest rate leaves free."""
_NEGLIGIBLE = 1e-9
"""Likelihood relative to the best curve, below which a curve is left out: most are, and each takes time."""
_LEAST_FREE = 1e-6
"""Least free share of an open loop's capacity, so that latency stays finite."""


@dataclass(frozen=True)
class ScatterPrior:
    """The expected scatter of windows around their curve, and the range of loads that a fit weighs."""

    scatter: float
    """Standard deviation of the log values of windows at one load, beyond `Points.deviations`: the machine's
    noise."""
    worth: float
    """Weight of this prior, in windows."""
    reach: float
    """Standard deviation, in log load, of the Gaussian weights of windows around the load of interest."""


@dataclass(frozen=True)
class Points:
    """One latency, or another positive quantity, in each of n windows."""

    loads: Floats
    """(n,): users of a closed loop; requests per second of an open loop."""
    values: Floats
    """(n,): log of the quantity; a latency is in seconds."""
    deviations: Floats
    """(n,): standard deviation of each log value, due to the window's finite number of requests."""


@dataclass(frozen=True)
class LatencyCurve:
    """The log of the quantity of `Points` over load: the weighted mean of m curves of the grid."""

    kind: Kind
    rates: Floats
    """(m,): r of each curve."""
    bends: Floats
    """(m,): k of each."""
    starts: Floats
    """(m,): log value of each without load."""
    weights: Floats
    """(m,): probability of each."""
    spread: float
    """Standard deviation of each of `starts`; 0 if the value without load is known."""
    scatter: float
    """As `ScatterPrior.scatter`, estimated from that prior and the windows."""
    _known: dict[bytes, tuple[Floats, Floats]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Results of `at`, by the bytes of `loads`: a search evaluates the same loads for each limit."""

    def at(self, loads: Floats) -> tuple[Floats, Floats]:
        """Return the (n,) means of the log value at n loads, and their (n,) standard deviations.

        The deviations are those of the curve, without the scatter of windows around it.
        """
        key = loads.tobytes()
        if key not in self._known:
            values = self.starts[:, None] + growth(self.kind, self.rates, self.bends, loads)
            mean = self.weights @ values
            self._known[key] = mean, np.sqrt(self.weights @ (values - mean) ** 2 + self.spread**2)
        return self._known[key]


def growth(kind: Kind, rates: Floats, bends: Floats, loads: Floats) -> Floats:
    """Return the (m, n) log ratios of latency at n loads to latency without load."""
    powers = rates[:, None] * loads
    # `np.power` takes most of the time of a search; where k is 1 the product is its own power.
    np.power(powers, bends[:, None], out=powers, where=bends[:, None] != 1)
    if kind == "closed":
        return np.asarray(np.log1p(powers) / bends[:, None])
    return np.asarray(-np.log(np.maximum(1 - powers, _LEAST_FREE)))


def through(
    kind: Kind,
    measured: Points,
    prior: ScatterPrior,
    *,
    near: float | None,
    lower_bounds: Points | None = None,
    start: float | None = None,
) -> LatencyCurve:
    """Return the curve through windows.

    Args:
        kind: of loop.
        measured: the windows, at least one.
        prior: of the scatter.
        near: the load of interest; windows far from it have less weight. None: the load changes no weight.
        lower_bounds: windows whose queue may have grown to their end: a curve above their values fits them.
        start: the log value without load, if known.
    """
    rates, bends, grown = _grid(kind, tuple(measured.loads.tolist()))
    weight = _weight(measured, prior, near)
    residuals = measured.values - grown
    starts = residuals @ weight / weight.sum() if start is None else np.full(len(rates), start)
    misfit = ((residuals - starts[:, None]) ** 2) @ weight
    # Variance of the windows around the best curve over the expected variance. The prior counts as `worth`
    # windows with a ratio of 1; the start and r take two degrees of freedom.
    degrees = max(0, len(measured.loads) - 2)
    variance_ratio = (prior.worth + float(misfit.min())) / (prior.worth + degrees)
    if lower_bounds is not None:
        growths = growth(kind, rates, bends, lower_bounds.loads)
        shortfalls = np.maximum(lower_bounds.values - growths - starts[:, None], 0.0)
        misfit = misfit + shortfalls**2 @ _weight(lower_bounds, prior, near)
    likelihood = np.exp(-0.5 * (misfit - misfit.min()) / variance_ratio)
    kept = likelihood > _NEGLIGIBLE
    return LatencyCurve(
        kind=kind,
        rates=rates[kept],
        bends=bends[kept],
        starts=starts[kept],
        weights=likelihood[kept] / likelihood[kept].sum(),
        spread=0.0 if start is not None else math.sqrt(variance_ratio / float(weight.sum())),
        scatter=prior.scatter * math.sqrt(variance_ratio),
    )


def _weight(points: Points, prior: ScatterPrior, near: float | None) -> Floats:
    """Return the (n,) weights of points: their inverse variances, times a Gaussian around `near`."""
    weight = 1 / (prior.scatter**2 + points.deviations**2)
    if near is None:
        return weight
    return np.asarray(weight * np.exp(-0.5 * (np.log(points.loads / near) / prior.reach) ** 2))


@lru_cache(maxsize=64)
def _grid(kind: Kind, loads: tuple[float, ...]) -> tuple[Floats, Floats, Floats]:
    """Return the (m,) r and (m,) k of the grid's curves, and their (m, n) growth at the windows' n loads.

    Cached, as one set of windows has several latencies, and each latency is fitted near several loads.
    """
    lowest, highest = min(loads), max(loads)
    if kind == "closed":
        growing = np.geomspace(UNBENT / highest, STRAIGHT / lowest, RATES)
    else:
        growing = (1 - FREE) / highest
    # r = 0: the latency does not depend on the load.
    rates, bends = (axis.ravel() for axis in np.meshgrid(np.concatenate([[0.0], growing]), BENDS))
    return rates, bends, growth(kind, rates, bends, np.array(loads))


def sampling_deviation(requests: Floats, percent: float) -> Floats:
    """Return the (n,) standard deviations of a percentile's logarithm in n windows, by their requests.

    For an exponential tail the variance for N requests is q / ((1 - q) N) over ln(1 / (1 - q)) squared, where
    q = percent / 100 (David and Nagaraja, Order Statistics, 2003, section 10.2).
    """
    share = percent / 100
    return np.asarray(np.sqrt(share / (1 - share) / requests) / math.log(1 / (1 - share)))
