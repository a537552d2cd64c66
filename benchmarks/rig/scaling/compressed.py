"""An hour of a trace in minutes: arrival times of requests, with a silence in between."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoscaler.simulate.workloads import arrivals
from autoscaler.simulate.workloads.load import Floats
from autoscaler.simulate.workloads.traces import BinTrace, ClientTrace, Trace
from rig.scaling import runs

HOUR = 3600.0
PEAK_SECONDS = 10
"""Seconds of the compressed trace whose highest rate is its peak."""


@dataclass(frozen=True)
class Shape:
    """The compression of the hour."""

    before: int
    """Seconds of load before the silence."""
    silence: int
    """Seconds without a request."""
    after: int
    """Seconds of load after it."""
    peak: float
    """Requests per second."""

    @property
    def seconds(self) -> int:
        return self.before + self.silence + self.after

    @property
    def factor(self) -> float:
        """The factor by which time passes faster than in the trace."""
        return HOUR / (self.before + self.after)


def trace(directory: Path, name: str) -> Trace:
    """Return the trace whose file name begins with `name`; raise SystemExit without one."""
    if not directory.is_dir():
        raise SystemExit(f"--traces: {directory} is not there")
    matches = [recorded for known, recorded in runs.recorded(directory).items() if known.startswith(name)]
    if not matches:
        raise SystemExit(f"--trace: no file of {directory} begins with {name}")
    return matches[0]


def moments(source: Trace, shape: Shape, seed: int) -> Floats:
    """Return arrivals in seconds from the start: the rates of the busiest hour, scaled to the peak.

    Between the trace's steps arrivals are random, as those of many clients.
    """
    seconds = shape.before + shape.after
    step = HOUR / seconds
    rates = _rates(source, step)
    width = min(seconds, len(rates))
    sums = np.convolve(rates, np.ones(width), mode="valid")
    first = int(np.argmax(sums))
    hour = rates[first : first + width]
    smooth = np.convolve(hour, np.ones(PEAK_SECONDS) / PEAK_SECONDS, mode="valid")
    draws = np.random.default_rng(seed)
    counts = draws.poisson(hour * shape.peak / float(smooth.max()))
    times = arrivals.within(counts.astype(np.float64), draws)
    shifted: Floats = np.where(times < shape.before, times, times + shape.silence)
    return shifted


def _rates(source: Trace, step: float) -> Floats:
    """Return requests per second of the trace at even steps."""
    if isinstance(source, ClientTrace):
        raise SystemExit("--trace: a trace of single clients; take one of requests, counts or rates")
    if isinstance(source, BinTrace):
        return np.maximum(arrivals.rates(source, 0.0, source.seconds, step), 0.0)
    bins = np.arange(0.0, source.seconds + step, step)
    counts, _ = np.histogram(source.times, bins)
    rates: Floats = counts / step
    return rates
