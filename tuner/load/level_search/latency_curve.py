"""A curve of latency over load through windows at several loads, with its uncertainty. Pure.

The p99 of a single window is noisy: two windows of one load differ by 20 %. Windows at other loads help, as
latency grows with load in few ways:

- Closed loop: with N users it is (1 + (r N)^k)^(1/k) times the latency without load. Up to 1 / r users hardly
  wait for each other; beyond it they share the capacity. The bend is the sharper the greater k is, from one
  queue in front of everything (k = 1: Denning and Buzen, The Operational Analysis of Queueing Network Models,
  1978, section 4) to the two asymptotes of separate servers. Percentiles grow as means do.
- Open loop: at a rate of s it is 1 / (1 - (r s)^k) times the latency without load; 1 / r is the capacity. One
  server has k = 1 (M/M/1); of several servers all must be busy before a request waits.

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
"""Closed loop: least r times the highest load, greatest r times the lowest load, and number of values."""
FREE = np.logspace(math.log10(0.9), -3, 24)
"""Open loop: shares of the capacity that the highest rate leaves free."""
_NEGLIGIBLE = 1e-9
"""Likelihood, of the best curve's, below which a curve is left out: most are, and each takes time."""
_FULL = 1e-6
"""Least free share of an open loop's capacity, so that latency stays finite."""


@dataclass(frozen=True)
class ScatterPrior:
    """The expected scatter of windows around their curve."""

    scatter: float
    """Standard deviation of a window's logarithm in addition to its own: the machine's noise."""
    worth: float
    """Weight of this prior, in windows."""
    reach: float
    """Distance in log load at which the weight of a window falls to 0.6."""


@dataclass(frozen=True)
class Points:
    """The windows' values: (n,) loads, log values, and standard deviations by the windows' own samples."""

    loads: Floats
    values: Floats
    deviations: Floats


@dataclass(frozen=True)
class LatencyCurve:
    """A latency, or another time, over load, in log seconds."""

    kind: Kind
    rates: Floats
    """(m,): r of each curve of the grid."""
    bends: Floats
    """(m,): k of each."""
    starts: Floats
    """(m,): value of each without load."""
    weights: Floats
    """(m,): probability of each."""
    spread: float
    """Standard deviation of each curve's height."""
    scatter: float
    """Standard deviation between windows of one load, without the part due to their few requests."""
    _known: dict[bytes, tuple[Floats, Floats]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Results of `at` by the loads: each limit and allowance asks for those of the same candidates."""

    def at(self, loads: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation at (n,) loads."""
        key = loads.tobytes()
        if key not in self._known:
            values = self.starts[:, None] + growth(self.kind, self.rates, self.bends, loads)
            mean = self.weights @ values
            self._known[key] = mean, np.sqrt(self.weights @ (values - mean) ** 2 + self.spread**2)
        return self._known[key]


def growth(kind: Kind, rates: Floats, bends: Floats, loads: Floats) -> Floats:
    """Return the (m, n) log ratios of latency at n loads to latency without load."""
    used = rates[:, None] * loads
    # Powers take most of the time of a search, and the first power is the value itself.
    np.power(used, bends[:, None], out=used, where=bends[:, None] != 1)
    if kind == "closed":
        return np.asarray(np.log1p(used) / bends[:, None])
    return np.asarray(-np.log(np.maximum(1 - used, _FULL)))


def through(
    kind: Kind,
    measured: Points,
    prior: ScatterPrior,
    *,
    near: float | None,
    least: Points | None = None,
    start: float | None = None,
) -> LatencyCurve:
    """Return the curve through windows.

    Its scatter combines the prior with that of the windows.

    Args:
        kind: of loop.
        measured: the windows, at least one.
        prior: of the scatter.
        near: the load of interest; windows far from it have less weight. None for equal weights.
        least: windows that ended while the queue grew, whose values are lower bounds.
        start: the log value without load, if known.
    """
    rates, bends, grown = _grid(kind, tuple(measured.loads.tolist()))
    weight = _weight(measured, prior, near)
    residuals = measured.values - grown
    starts = residuals @ weight / weight.sum() if start is None else np.full(len(rates), start)
    misfit = ((residuals - starts[:, None]) ** 2) @ weight
    ratio = (prior.worth + float(misfit.min())) / (prior.worth + max(0, len(measured.loads) - 2))
    if least is not None:
        shortfall = least.values - growth(kind, rates, bends, least.loads) - starts[:, None]
        misfit = misfit + (np.maximum(shortfall, 0.0) ** 2) @ _weight(least, prior, near)
    likelihood = np.exp(-0.5 * (misfit - misfit.min()) / ratio)
    kept = likelihood > _NEGLIGIBLE
    return LatencyCurve(
        kind=kind,
        rates=rates[kept],
        bends=bends[kept],
        starts=starts[kept],
        weights=likelihood[kept] / likelihood[kept].sum(),
        spread=0.0 if start is not None else math.sqrt(ratio / float(weight.sum())),
        scatter=prior.scatter * math.sqrt(ratio),
    )


def _weight(points: Points, prior: ScatterPrior, near: float | None) -> Floats:
    weight = 1 / (prior.scatter**2 + points.deviations**2)
    if near is None:
        return weight
    return np.asarray(weight * np.exp(-0.5 * (np.log(points.loads / near) / prior.reach) ** 2))


@lru_cache(maxsize=64)
def _grid(kind: Kind, loads: tuple[float, ...]) -> tuple[Floats, Floats, Floats]:
    """Return r and k of the grid's curves, and their growth at the windows' loads.

    The same windows have several latencies, each of which is fitted near several loads.
    """
    least, most = min(loads), max(loads)
    bent = np.geomspace(UNBENT / most, STRAIGHT / least, RATES) if kind == "closed" else (1 - FREE) / most
    rates, bends = (each.ravel() for each in np.meshgrid(np.concatenate([[0.0], bent]), BENDS))
    return rates, bends, growth(kind, rates, bends, np.array(loads))


def sampling(requests: Floats, percent: float) -> Floats:
    """Return the standard deviation of a percentile's logarithm, by the number of requests.

    For an exponential tail, q / ((1 - q) n) over ln(1 / (1 - q)) squared (David and Nagaraja, Order
    Statistics, 2003, section 10.2).
    """
    share = percent / 100
    return np.asarray(np.sqrt(share / (1 - share) / requests) / math.log(1 / (1 - share)))
