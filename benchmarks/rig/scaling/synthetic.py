"""Synthetic loads: each shows one failure mode of a policy that no recorded trace shows."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autoscaler.simulate.workloads.load import Floats
from autoscaler.simulate.workloads.scenarios import Cut, Recipe
from autoscaler.simulate.workloads.traces import DAY, FIRST_DAY, HOUR, BinTrace, RequestTrace

BIN = 60.0
"""Seconds of a bin."""
BUSY = 200.0
"""Requests per second of a busy hour: so many that `scenarios` simulates the load as a `Flow`."""
OUTAGE = 600.0
"""Seconds without readings, of each outage."""


@dataclass(frozen=True, slots=True)
class Synthetic:
    """A trace with the length of its history."""

    trace: BinTrace | RequestTrace
    history_seconds: float
    """Seconds from the start of the trace to the start of the run."""
    lost_history: tuple[float, float] | None = None
    outages: tuple[tuple[float, float], ...] = ()
    """As in a `Recipe`; so is `lost_history`."""


def recipes(days: float) -> list[Recipe]:
    """Return the recipes of the synthetic loads, with at most `days` scored days each."""
    results = []
    for name, load in _every().items():
        seconds = int(min(load.trace.seconds - load.history_seconds, days * DAY))
        cut = Cut(history_start=0.0, start=load.history_seconds, seconds=seconds)
        tags = {"synthetic"} | ({"diffusion"} if isinstance(load.trace, RequestTrace) else set())
        recipe = Recipe(
            name,
            load.trace,
            cut,
            lost_history=load.lost_history,
            outages=load.outages,
            tags=frozenset(tags),
        )
        results.append(recipe)
    return results


def _every() -> Mapping[str, Synthetic]:
    """Return all synthetic loads by name."""
    lost = Synthetic(
        _bins("lost", _daily(9 * DAY)),
        history_seconds=7 * DAY,
        lost_history=(3 * DAY, 4 * DAY),
        outages=tuple((hour * HOUR, hour * HOUR + OUTAGE) for hour in (8, 20, 32.5)),
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
    """Return the middle of each bin of a trace, in seconds from its start."""
    moments: Floats = BIN * (np.arange(int(seconds // BIN), dtype=np.float64) + 0.5)
    return moments


def _daily(seconds: float, moments: Floats | None = None) -> Floats:
    """Return the rates of office hours, the same each day: a steep rise at eight, a dip at noon, a slow fall.

    Args:
        seconds: length of the trace.
        moments: time of day of each bin, in seconds from a midnight; None: the trace starts at midnight.
    """
    hour = (_moments(seconds) if moments is None else moments) % DAY / HOUR
    points = (0, 5, 7.5, 8.5, 11.5, 12.5, 13.5, 17, 19, 22, 24)
    levels = (0.15, 0.1, 0.2, 1.0, 1.1, 0.85, 1.1, 1.0, 0.6, 0.3, 0.15)
    return BUSY * np.interp(hour, points, levels)


def _steps() -> Floats:
    """Return an even load that is tenfold for one hour, three times after the first day."""
    moments = _moments(DAY + 9 * HOUR)
    within = (moments - DAY) % (3 * HOUR)
    high = (moments > DAY) & (within >= 1.5 * HOUR) & (within < 2.5 * HOUR)
    return np.where(high, BUSY * 2, BUSY / 5)


def _ramps() -> Floats:
    """Return a load that rises tenfold in half an hour and falls again, three times after the first day."""
    moments = _moments(DAY + 9 * HOUR)
    within = np.where(moments > DAY, (moments - DAY) % (3 * HOUR), 0) / HOUR
    return BUSY / 5 * np.interp(within, (0, 0.5, 1, 1.5, 2, 3), (1, 1, 10, 10, 1, 1))


def _shifted() -> Floats:
    """Return days of office hours whose clock goes forward one hour, on the second day after the history."""
    moments = _moments(10 * DAY)
    return _daily(10 * DAY, np.where(moments >= 8 * DAY, moments + HOUR, moments))


def _holiday() -> Floats:
    """Return days of office hours; the second day after the history has a fifth of the load."""
    moments = _moments(10 * DAY)
    return _daily(10 * DAY) * np.where((moments >= 8 * DAY) & (moments < 9 * DAY), 0.2, 1.0)


def _bursts() -> Floats:
    """Return office hours with bursts: one in two hours on average, three- to eightfold, 1 to 10 minutes."""
    draws = np.random.default_rng(20_261_121)
    rates = 0.5 * _daily(4 * DAY)
    at = 0.0
    while (at := at + draws.exponential(2 * HOUR)) < 4 * DAY:
        duration = draws.uniform(60, 600)
        rates[int(at // BIN) : int((at + duration) // BIN) + 1] *= draws.uniform(3, 8)
    return rates


def _diffusion() -> RequestTrace:
    """Return requests for images with their GPU seconds, in sessions of six on average, mostly by day."""
    draws = np.random.default_rng(20_261_122)
    days, most_per_second = 8, 12 / HOUR
    # Sessions at the highest rate of a day, thinned to the rate of their hour.
    candidates = np.sort(draws.uniform(0, days * DAY, draws.poisson(days * DAY * most_per_second)))
    share = np.interp(candidates % DAY / HOUR, (0, 3, 7, 10, 20, 24), (0.3, 0.05, 0.1, 0.8, 1.0, 0.3))
    sessions = candidates[draws.random(len(candidates)) < share]
    images = draws.geometric(1 / 6, len(sessions))
    session_start = np.repeat(sessions, images)
    # Seconds since the session's last image; 0 for its first one.
    gaps = draws.exponential(45, len(session_start))
    first_images = np.cumsum(images) - images
    gaps[first_images] = 0
    elapsed = np.cumsum(gaps)
    since_session_start = elapsed - np.repeat(elapsed[first_images], images)
    times = np.sort(session_start + since_session_start)
    # Log-normal GPU seconds with a median of 35, as on a fleet of GPUs.
    execution = np.clip(35 * np.exp(0.58 * draws.standard_normal(len(times))), 5, 200)
    return RequestTrace("diffusion", FIRST_DAY, times, execution=execution)
