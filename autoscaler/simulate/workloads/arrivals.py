"""Arrivals for traces without single requests: for rates of bins, and for laws of clients. Pure.

A `BinTrace` has a rate for each bin; a `ClientTrace` has a rate and a law for each window of each client.
"""

import math
from collections.abc import Sequence

import numpy as np

from autoscaler.simulate.workloads.load import Floats
from autoscaler.simulate.workloads.traces import BinTrace, ClientTrace, Law, RequestTrace

SAME = 0.02
"""Relative difference of total requests up to which clients belong to a trace of rates: published figures are
rounded.
"""
ROUNDED = 5e-4
"""Relative difference from a whole number up to which a window's requests are a recorded count: published
rates have four digits.
"""


def rates(trace: BinTrace, start: float, seconds: float, step: float) -> Floats:
    """Return requests per second for each step of `step` seconds, from `start` seconds of the trace on.

    Bins longer than a step are interpolated: the rate is linear between the middles of bins, scaled so that
    each bin keeps its total. Shorter bins are summed.
    """
    steps = int(seconds // step)
    edges: Floats = start + step * np.arange(steps + 1, dtype=np.float64)
    if trace.step > step:
        return _interpolated(trace, edges[:-1] + step / 2)
    total_at_bins = np.concatenate([[0.0], np.cumsum(trace.rates * trace.step)])
    total_at_edges = np.interp(edges, trace.step * np.arange(len(total_at_bins)), total_at_bins)
    per_second: Floats = np.diff(total_at_edges) / step
    return per_second


def flow(
    trace: BinTrace, start: float, seconds: int, draws: np.random.Generator, times: float = 1.0
) -> Floats:
    """Return the requests of each second, `times` as many as in the trace.

    Bins of more than a second give Poisson counts; bins of a second or less have the counts of the trace.
    """
    per_second = rates(trace, start, seconds, 1.0) * times
    if trace.step <= 1:
        return per_second
    return draws.poisson(np.maximum(per_second, 0)).astype(np.float64)


def clients_together(
    trace: ClientTrace, start: float, seconds: int, draws: np.random.Generator, sums: BinTrace | None = None
) -> Floats:
    """Return the requests of each second of all clients.

    A trace has one rate for each window of a client, so the total jumps where windows end, as the recorded
    load did not. With `sums`, the total rate of all clients in bins, the jumps are removed: each second is
    multiplied by the interpolated rate of `rates` over the rate of its bin.
    """
    total = np.zeros(seconds)
    for laws in trace.clients.values():
        times = client_times(laws, start, seconds, draws)
        total += np.bincount(times.astype(np.int64), minlength=seconds)[:seconds]
    if sums is None:
        return total
    bins = ((start + np.arange(seconds)) // sums.step).astype(np.int64)
    bin_rates = sums.rates[np.clip(bins, 0, len(sums.rates) - 1)]
    interpolated = rates(sums, start, seconds, 1.0)
    scale = np.divide(interpolated, bin_rates, out=np.ones(seconds), where=bin_rates > 0)
    return whole(total * scale, draws)


def whole(expected: Floats, draws: np.random.Generator) -> Floats:
    """Return random whole numbers with the means `expected`: each is rounded up with the probability of its
    fraction, else down.
    """
    least = np.floor(expected)
    counts: Floats = least + (draws.random(len(expected)) < expected - least)
    return counts


def client_times(laws: Sequence[Law], start: float, seconds: float, draws: np.random.Generator) -> Floats:
    """Return the arrivals of one client, in seconds from `start`.

    A window has the whole number of requests that is nearest to its rate times its length. The times between
    requests follow the window's law, scaled to fill the window. All are shifted by one random time; requests
    that pass the end of the window continue at its beginning.
    """
    parts = [_window(law, draws) for law in laws if start - law.seconds < law.start < start + seconds]
    if not parts:
        return np.empty(0)
    times = np.concatenate(parts) - start
    return np.sort(times[(times >= 0) & (times < seconds)])


def within(counts: Floats, draws: np.random.Generator) -> Floats:
    """Return the arrivals, in seconds, for counts of each second: each at a random time of its second."""
    second_of_request = np.repeat(np.arange(len(counts)), counts.astype(np.int64))
    return np.sort(second_of_request + draws.random(len(second_of_request)))


def of_clients(trace: BinTrace, among: Sequence[ClientTrace]) -> ClientTrace | None:
    """Return the trace of clients that has the length and the total requests of `trace`; None without one."""
    for clients in among:
        if abs(clients.seconds - trace.seconds) >= trace.step:
            continue
        total = sum(law.rate * law.seconds for laws in clients.clients.values() for law in laws)
        if abs(total - trace.rates.sum() * trace.step) <= SAME * total:
            return clients
    return None


def cut(trace: RequestTrace, start: float, seconds: float) -> RequestTrace:
    """Return the requests of the `seconds` that begin `start` seconds after the start of the trace."""
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
    """Return the rates at `moments`, in seconds of the trace, scaled so that each bin keeps its total."""
    middles = trace.step * (np.arange(len(trace.rates)) + 0.5)
    between = np.interp(moments, middles, trace.rates)
    bins = np.clip((moments // trace.step).astype(np.int64), 0, len(trace.rates) - 1)
    interpolated = np.bincount(bins, weights=between, minlength=len(trace.rates))
    expected = np.bincount(bins, weights=trace.rates[bins], minlength=len(trace.rates))
    scale = np.divide(expected, interpolated, out=np.ones(len(interpolated)), where=interpolated > 0)
    return between * scale[bins]


def _window(law: Law, draws: np.random.Generator) -> Floats:
    """Return the arrivals of one window, in seconds of the trace."""
    requests = _requests_of(law, draws)
    if law.family == "W":
        gaps = draws.weibull(law.shape, requests + 1)
    else:
        gaps = draws.standard_gamma(law.shape, requests + 1)
    total = float(gaps.sum())
    if total <= 0:
        return law.start + law.seconds * draws.random(requests)
    share_of_window = np.cumsum(gaps[:-1]) / total + draws.random()
    return law.start + law.seconds * (share_of_window % 1.0)


def _requests_of(law: Law, draws: np.random.Generator) -> int:
    """Return the requests of one window: the count that its rate was made of, else a random whole number with
    the mean of its rate, as by `whole`.
    """
    expected = law.rate * law.seconds
    nearest = round(expected)
    if abs(expected - nearest) <= ROUNDED * expected:
        return nearest
    least = math.floor(expected)
    return least + int(draws.random() < expected - least)
