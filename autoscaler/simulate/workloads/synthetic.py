"""Synthetic loads, each for one failure mode that no recorded trace has; made and cut like traces. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autoscaler.simulate.workloads.load import Floats
from autoscaler.simulate.workloads.traces import FIRST_DAY, BinTrace, RequestTrace

DAY = 86_400.0
HOUR = 3_600.0
BIN = 60.0
BUSY = 200.0
"""Requests per second: enough that a fluid stands for them."""
OUTAGE = 600.0
"""Seconds without a reading, of the protocol."""


@dataclass(frozen=True, slots=True)
class Synthetic:
    """A load, and the start of its score."""

    trace: BinTrace | RequestTrace
    history: float
    """Seconds of history before the run."""
    lost_history: tuple[float, float] | None = None
    """A lost span of the history, known as a straight line."""
    outages: tuple[tuple[float, float], ...] = ()
    """Spans of the run without readings, in seconds from its start."""


def every() -> Mapping[str, Synthetic]:
    """Return all synthetic loads by name."""
    lost = Synthetic(
        _bins("lost", _daily(9 * DAY)),
        7 * DAY,
        (3 * DAY, 4 * DAY),
        tuple((at * HOUR, at * HOUR + OUTAGE) for at in (8, 20, 32.5)),
    )
    return {
        "step x10": Synthetic(_bins("step", _steps()), DAY),
        "ramp": Synthetic(_bins("ramp", _ramps()), DAY),
        "daylight saving": Synthetic(_bins("daylight", _shifted()), 7 * DAY),
        "holiday": Synthetic(_bins("holiday", _holiday()), 7 * DAY),
        "lost data": lost,
        "bursts": Synthetic(_bins("bursts", _bursts()), 2 * DAY),
        "sparse diffusion": Synthetic(_diffusion(), 4 * DAY),
    }


def _bins(name: str, rates: Floats) -> BinTrace:
    return BinTrace(name, FIRST_DAY, BIN, rates)


def _moments(seconds: float) -> Floats:
    moments: Floats = BIN * (np.arange(int(seconds // BIN), dtype=np.float64) + 0.5)
    return moments


def _daily(seconds: float, moments: Floats | None = None) -> Floats:
    """Return a day of office hours: a steep morning at eight, a noon dip, a slow evening."""
    hour = (_moments(seconds) if moments is None else moments) % DAY / HOUR
    points = (0, 5, 7.5, 8.5, 11.5, 12.5, 13.5, 17, 19, 22, 24)
    levels = (0.15, 0.1, 0.2, 1.0, 1.1, 0.85, 1.1, 1.0, 0.6, 0.3, 0.15)
    return BUSY * np.interp(hour, points, levels)


def _steps() -> Floats:
    """Return an even load that is tenfold for an hour, three times."""
    moments = _moments(DAY + 9 * HOUR)
    within = (moments - DAY) % (3 * HOUR)
    high = (moments > DAY) & (within >= 1.5 * HOUR) & (within < 2.5 * HOUR)
    return np.where(high, BUSY * 2, BUSY / 5)


def _ramps() -> Floats:
    """Return a load that rises tenfold over half an hour, stays for one hour, and falls."""
    moments = _moments(DAY + 9 * HOUR)
    within = np.where(moments > DAY, (moments - DAY) % (3 * HOUR), 0) / HOUR
    return BUSY / 5 * np.interp(within, (0, 0.5, 1, 1.5, 2, 3), (1, 1, 10, 10, 1, 1))


def _shifted() -> Floats:
    """Return days whose clock goes forward by an hour a day after the history ends."""
    moments = _moments(10 * DAY)
    return _daily(10 * DAY, np.where(moments >= 8 * DAY, moments + HOUR, moments))


def _holiday() -> Floats:
    """Return days of which the second after the history has a fifth of the load."""
    moments = _moments(10 * DAY)
    return _daily(10 * DAY) * np.where((moments >= 8 * DAY) & (moments < 9 * DAY), 0.2, 1.0)


def _bursts() -> Floats:
    """Return days with bursts: every two hours on the mean, three- to eightfold, for one to ten minutes."""
    draws = np.random.default_rng(20_261_121)
    rates = 0.5 * _daily(4 * DAY)
    at = 0.0
    while (at := at + draws.exponential(2 * HOUR)) < 4 * DAY:
        lasts = draws.uniform(60, 600)
        rates[int(at // BIN) : int((at + lasts) // BIN) + 1] *= draws.uniform(3, 8)
    return rates


def _diffusion() -> RequestTrace:
    """Return sessions of a few images each, more by day than by night, with GPU seconds as on a fleet."""
    draws = np.random.default_rng(20_261_122)
    days, most = 8, 12 / HOUR
    sessions = np.sort(draws.uniform(0, days * DAY, draws.poisson(days * DAY * most)))
    share = np.interp(sessions % DAY / HOUR, (0, 3, 7, 10, 20, 24), (0.3, 0.05, 0.1, 0.8, 1.0, 0.3))
    kept = sessions[draws.random(len(sessions)) < share]
    images = draws.geometric(1 / 6, len(kept))
    owner = np.repeat(kept, images)
    gaps = draws.exponential(45, len(owner))
    gaps[np.cumsum(images) - images] = 0
    order = np.cumsum(gaps)
    since = order - np.repeat(order[np.cumsum(images) - images], images)
    times = np.sort(owner + since)
    execution = np.clip(35 * np.exp(0.58 * draws.standard_normal(len(times))), 5, 200)
    return RequestTrace("diffusion", FIRST_DAY, times, execution=execution)
