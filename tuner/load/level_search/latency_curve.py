"""A latency as it grows with the load: a curve through what windows at several loads saw, with how sure it is. Pure numbers.

One window of a p99 is a lottery: two of the same load are 20 % apart. Windows at other loads say something of this one, too, as latency
grows with load in few ways:

- Closed loop: what a request takes with N users is (1 + (r N)^k)^(1/k) times what it takes with hardly any: with r at 0 the users do not
  wait for each other, beyond 1 / r they share what there is, and k says how sharp the bend is, from one queue in front of everything
  (k = 1: Denning and Buzen, The Operational Analysis of Queueing Network Models, 1978, section 4) to the two asymptotes of servers that
  nobody shares. Percentiles grow as means do.
- Open loop: at a rate of s it is 1 / (1 - (r s)^k) times that, 1 / r being the capacity. One server has k = 1 (M/M/1); of more servers
  all must be busy before anybody waits.

Every (r, k) of a grid is fitted, in logarithms, and counts by its likelihood: a curve is the mean of them, and few windows leave many.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tuner.load.windows.samples import Floats

Kind = Literal["closed", "open"]

BENDS = (1.0, 2.0, 4.0, 8.0)
"""k; of more than 8 no window tells."""
UNBENT, STRAIGHT, RATES = 0.03, 10.0, 40
"""Closed loop: r times the highest load at least, times the lowest at most, and how many between: beyond both the curves are the same."""
LEFT = np.logspace(math.log10(0.9), -3, 24)
"""Open loop: share of the capacity that the highest rate leaves, from nearly all of it to hardly any."""
_FULL = 1e-6
"""Least share of the capacity of an open loop that is taken to be left: beyond it nothing is expected, only that it is bad."""


@dataclass(frozen=True)
class ScatterPrior:
    """How far windows are from their curve, before any was seen."""

    scatter: float
    """Standard deviation of a window's logarithm, beside its own: what the machine does."""
    worth: float
    """Windows that this counts for."""
    reach: float
    """Distance in load, as a logarithm, at which a window counts 0.6 times as much as one that is near."""


@dataclass(frozen=True)
class Points:
    """What windows saw: (n,) loads, the logarithms of what was seen, and their standard deviations by the windows' own samples."""

    loads: Floats
    values: Floats
    deviations: Floats


@dataclass(frozen=True)
class Curve:
    """A latency, or any time, over load; logarithms of seconds."""

    kind: Kind
    rates: Floats
    """(m,): r of each curve."""
    bends: Floats
    """(m,): its k."""
    starts: Floats
    """(m,): its value without load."""
    weights: Floats
    """(m,): its probability."""
    spread: float
    """Standard deviation of each curve's height."""
    scatter: float
    """Standard deviation from one window to the next of the same load, beside what the window's own few requests add."""

    def at(self, loads: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation at (n,) loads."""
        values = self.starts[:, None] + growth(self.kind, self.rates, self.bends, loads)
        mean = self.weights @ values
        return mean, np.sqrt(self.weights @ (values - mean) ** 2 + self.spread**2)


def growth(kind: Kind, rates: Floats, bends: Floats, loads: Floats) -> Floats:
    """Return (m, n) logarithms of how much longer a request takes at n loads than without load."""
    used = (rates[:, None] * loads) ** bends[:, None]
    if kind == "closed":
        return np.asarray(np.log1p(used) / bends[:, None])
    return np.asarray(-np.log(np.maximum(1 - used, _FULL)))


def through(
    kind: Kind,
    seen: Points,
    belief: ScatterPrior,
    *,
    near: float | None,
    least: Points | None = None,
    start: float | None = None,
) -> Curve:
    """Return the curve through windows.

    The scatter is that which was expected, and that of the windows, each by what it counts for.

    Args:
        kind: how it grows.
        seen: at least one.
        belief: what is expected of the scatter.
        near: the load that matters; windows far from it count less. None for all alike.
        least: windows that say only that it is this at least, as they ended while it still grew.
        start: its value without load, where that is known.
    """
    rates, bends = _grid(kind, seen.loads)
    weight = _weight(seen, belief, near)
    left = seen.values - growth(kind, rates, bends, seen.loads)
    starts = left @ weight / weight.sum() if start is None else np.full(len(rates), start)
    misfit = ((left - starts[:, None]) ** 2) @ weight
    ratio = (belief.worth + float(misfit.min())) / (belief.worth + max(0, len(seen.loads) - 2))
    if least is not None:
        short = least.values - growth(kind, rates, bends, least.loads) - starts[:, None]
        misfit = misfit + (np.maximum(short, 0.0) ** 2) @ _weight(least, belief, near)
    likelihood = np.exp(-0.5 * (misfit - misfit.min()) / ratio)
    return Curve(
        kind=kind, rates=rates, bends=bends, starts=starts, weights=likelihood / likelihood.sum(),
        spread=0.0 if start is not None else math.sqrt(ratio / float(weight.sum())), scatter=belief.scatter * math.sqrt(ratio),
    )  # fmt: skip


def _weight(points: Points, belief: ScatterPrior, near: float | None) -> Floats:
    weight = 1 / (belief.scatter**2 + points.deviations**2)
    if near is None:
        return weight
    return np.asarray(weight * np.exp(-0.5 * (np.log(points.loads / near) / belief.reach) ** 2))


def _grid(kind: Kind, loads: Floats) -> tuple[Floats, Floats]:
    least, most = float(loads.min()), float(loads.max())
    bent = np.geomspace(UNBENT / most, STRAIGHT / least, RATES) if kind == "closed" else (1 - LEFT) / most
    rates, bends = np.meshgrid(np.concatenate([[0.0], bent]), BENDS)
    return rates.ravel(), bends.ravel()


def sampling(requests: Floats, percent: float) -> Floats:
    """Return the standard deviation of a percentile's logarithm that so few requests leave.

    Of an exponential tail, q / ((1 - q) n) over ln(1 / (1 - q)) squared (David and Nagaraja, Order Statistics, 2003, section 10.2).
    """
    share = percent / 100
    return np.asarray(np.sqrt(share / (1 - share) / requests) / math.log(1 / (1 - share)))
