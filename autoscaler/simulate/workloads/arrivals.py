"""Arrivals from traces that have only counts, rates or laws; measured requests are used as they are. Pure."""

from collections.abc import Sequence

import numpy as np

from autoscaler.simulate.workloads.load import Floats
from autoscaler.simulate.workloads.traces import BinTrace, ClientTrace, Law, RequestTrace

SAME = 0.02
"""Relative difference of mean rates up to which clients belong to a trace of rates: rounding of published
figures.
"""


def rates(trace: BinTrace, start: float, seconds: float, step: float) -> Floats:
    """Return requests per second at even steps from `start` seconds of the trace on.

    The rate is linear between the middles of bins, scaled so that each bin keeps its total; bins that are no
    longer than a step are summed.
    """
    steps = int(seconds // step)
    edges: Floats = start + step * np.arange(steps + 1, dtype=np.float64)
    if trace.step > step:
        return _interpolated(trace, edges[:-1] + step / 2)
    total = np.concatenate([[0.0], np.cumsum(trace.rates * trace.step)])
    reached = np.interp(edges, trace.step * np.arange(len(total)), total)
    per_second: Floats = np.diff(reached) / step
    return per_second


def flow(
    trace: BinTrace, start: float, seconds: int, draws: np.random.Generator, times: float = 1.0
) -> Floats:
    """Return the requests of each second, `times` as many as in the trace; counts per second stay as they
    are.
    """
    per_second = rates(trace, start, seconds, 1.0) * times
    if trace.step <= 1:
        return per_second
    return draws.poisson(np.maximum(per_second, 0)).astype(np.float64)


def clients_together(
    trace: ClientTrace, start: float, seconds: int, draws: np.random.Generator, sums: BinTrace | None = None
) -> Floats:
    """Return the requests of each second of all clients.

    The rate of each client is published per window, and steps where a window ends, which the source does not.
    Given `sums`, the sum of their rates, the steps are removed: requests vary about the straight lines of
    `rates` as they vary about the steps.
    """
    total = np.zeros(seconds)
    for laws in trace.clients.values():
        times = client_times(laws, start, seconds, draws)
        total += np.bincount(times.astype(np.int64), minlength=seconds)[:seconds]
    if sums is None:
        return total
    bins = ((start + np.arange(seconds)) // sums.step).astype(np.int64)
    steps = sums.rates[np.clip(bins, 0, len(sums.rates) - 1)]
    lines = rates(sums, start, seconds, 1.0)
    scaled = total * np.divide(lines, steps, out=np.ones(seconds), where=steps > 0)
    return whole(scaled, draws)


def whole(expected: Floats, draws: np.random.Generator) -> Floats:
    """Return whole numbers with these means: each is rounded up with the probability of its fraction."""
    least = np.floor(expected)
    counts: Floats = least + (draws.random(len(expected)) < expected - least)
    return counts


def client_times(laws: Sequence[Law], start: float, seconds: float, draws: np.random.Generator) -> Floats:
    """Return the arrivals of one client, in seconds from `start`.

    Each window has the requests of its rate; the times between them follow the law, scaled to fill the
    window, from a random point on.
    """
    parts = [_window(law, draws) for law in laws if start - law.seconds < law.start < start + seconds]
    if not parts:
        return np.empty(0)
    times = np.concatenate(parts) - start
    return np.sort(times[(times >= 0) & (times < seconds)])


def within(seconds: Floats, draws: np.random.Generator) -> Floats:
    """Return single arrivals for counts of each second, at random times within it."""
    at = np.repeat(np.arange(len(seconds)), seconds.astype(np.int64))
    return np.sort(at + draws.random(len(at)))


def of_clients(trace: BinTrace, among: Sequence[ClientTrace]) -> ClientTrace | None:
    """Return the clients whose rates add up to the trace's, if there is a trace of them."""
    for clients in among:
        if abs(clients.seconds - trace.seconds) >= trace.step:
            continue
        total = sum(law.rate * law.seconds for laws in clients.clients.values() for law in laws)
        if abs(total - trace.rates.sum() * trace.step) <= SAME * total:
            return clients
    return None


def cut(trace: RequestTrace, start: float, seconds: float) -> RequestTrace:
    """Return the requests of a span, with times from its start."""
    first, last = np.searchsorted(trace.times, [start, start + seconds])
    span = slice(int(first), int(last))

    def part(values: Floats | None) -> Floats | None:
        return None if values is None else values[span]

    return RequestTrace(
        trace.name,
        trace.start + start,
        trace.times[span] - start,
        part(trace.inputs),
        part(trace.outputs),
        part(trace.execution),
    )


def _interpolated(trace: BinTrace, moments: Floats) -> Floats:
    middles = trace.step * (np.arange(len(trace.rates)) + 0.5)
    between = np.interp(moments, middles, trace.rates)
    bins = np.clip((moments // trace.step).astype(np.int64), 0, len(trace.rates) - 1)
    has = np.bincount(bins, weights=between, minlength=len(trace.rates))
    expected = np.bincount(bins, weights=trace.rates[bins], minlength=len(trace.rates))
    scale = np.divide(expected, has, out=np.ones(len(has)), where=has > 0)
    return between * scale[bins]


def _window(law: Law, draws: np.random.Generator) -> Floats:
    requests = round(law.rate * law.seconds)
    if law.family == "W":
        gaps = draws.weibull(law.shape, requests + 1)
    else:
        gaps = draws.standard_gamma(law.shape, requests + 1)
    total = float(gaps.sum())
    if total <= 0:
        return law.start + law.seconds * draws.random(requests)
    at = np.cumsum(gaps[:-1]) / total + draws.random()
    return law.start + law.seconds * (at % 1.0)
