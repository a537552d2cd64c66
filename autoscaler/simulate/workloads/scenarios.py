"""Services made of traces: their cut, the size of their replicas, and their objective. Pure.

A trace of 10 days or more is history for 7 and scored for the rest, at most 14 days. A trace of more than 40
days is cut twice, with 14 days of history before 14 scored ones: from its middle on, and around its busiest
time. From six hours on, the first quarter is history; a shorter trace has none. Replicas are so large that
the scored part needs 15 on the mean; for requests with GPU seconds, and for single clients, they are as in
the source. A trace of bins with few requests stands for one of many: its rates are multiplied.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.simulate.policy_inputs import LoadHistory
from autoscaler.simulate.workloads import arrivals, synthetic
from autoscaler.simulate.workloads.load import Floats, Flow, Replica, Requests
from autoscaler.simulate.workloads.synthetic import DAY, HOUR, Synthetic
from autoscaler.simulate.workloads.traces import BinTrace, ClientTrace, Law, RequestTrace, Trace, mean_rates
from autoscaler.simulate.workloads.workload import SHORTEST_WAIT, Workload, history_of

MEAN_NEED = 15.0
"""Mean replicas: the middle of the protocol's 10 to 20."""
SERVICE_SECONDS = 2.0
"""Approximate service time in seconds; the concurrency of a replica follows from it and its rate."""
SPREAD = math.sqrt(math.log(1 + 0.5**2))
"""Standard deviation of the logarithm of service times with a coefficient of variation of 0.5."""
OUTPUT_WEIGHT = 4.0
"""Work of an output token in input tokens: one GPU reads about 12,000 tokens a second and writes about 3,000
in full batches.
"""
BUSY_RATE = 10.0
"""Requests per second to which a trace of bins is multiplied; below, chance would hide its shape."""
MOST_REQUESTS = 5_000_000
"""Most requests of a run of single requests; more of them flow."""
FLUID_RATE = 50.0
"""Requests per second of a trace from which on shorter runs flow too, as a single request no longer matters.
"""
DIFFUSION_WAIT = 30.0
"""Allowed wait of a request with GPU seconds, in seconds."""

CLIENT_REPLICA = Replica(rate=2.0, concurrency=4, service_seconds=2.0)
"""Replica of a client with few requests: one is enough."""
SPARSE_RATE = 2 / 60
"""Requests per second below which a client is sparse."""
FEWEST = 20
"""Fewest requests of a scored client; a percentage of fewer says nothing."""

SMOOTH = 1 / 3
"""Largest change between ten minutes, as a share of the load, of nine in ten changes of a smooth trace."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Positions in a trace, in seconds."""

    history: float
    """Start of the history."""
    start: float
    """Start of the run, and end of the history."""
    seconds: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A workload without its seed."""

    name: str
    trace: RequestTrace | BinTrace | tuple[Law, ...]
    cut: Cut
    clients: ClientTrace | None = None
    """Clients whose arrivals make up the bins."""
    extra: Synthetic | None = None
    start: float = 0.0
    """Start of a client's trace, in Unix seconds."""
    tags: frozenset[str] = frozenset()
    """`smooth`, `sparse`, `synthetic` or `requests`: the kind of the trace, by its data."""

    def workload(self, seed: int) -> Workload:
        """Return the workload of one seed."""
        draws = np.random.default_rng((seed, 3))
        if isinstance(self.trace, BinTrace):
            return _of_bins(self, self.trace, draws)
        if isinstance(self.trace, RequestTrace):
            return _of_requests(self, self.trace, draws)
        return _of_client(self, self.trace, draws)


def recipes(traces: Mapping[str, Trace], *, days: float = 14, clients: int = 12) -> list[Recipe]:
    """Return the services of traces by name, one for each trace and for a sample of sparse clients.

    Args:
        traces: by a name for people.
        days: most scored days of a trace.
        clients: most sparse clients of a trace of clients.
    """
    among = [trace for trace in traces.values() if isinstance(trace, ClientTrace)]
    results: list[Recipe] = []
    for name, trace in traces.items():
        if isinstance(trace, ClientTrace):
            results += _sparse(name, trace, days, clients)
        elif isinstance(trace, BinTrace):
            together = arrivals.of_clients(trace, among)
            results += [
                Recipe(name + cut.label, trace, cut, together, tags=_nature(trace, cut))
                for cut in cuts(trace.seconds, days, _busiest(trace))
            ]
        else:
            cut = cuts(trace.seconds, days, trace.seconds / 2)[0]
            tags = {"diffusion", "sparse"} if trace.execution is not None else {"requests"}
            results.append(Recipe(name, trace, cut, tags=frozenset(tags)))
    return results


def synthetic_recipes(*, days: float = 14) -> list[Recipe]:
    """Return the synthetic loads, at most `days` of each."""
    results = []
    for name, load in synthetic.every().items():
        seconds = int(min(load.trace.seconds - load.history, days * DAY))
        tags = {"synthetic"} | ({"diffusion"} if isinstance(load.trace, RequestTrace) else set())
        results.append(
            Recipe(name, load.trace, Cut(0, load.history, seconds), extra=load, tags=frozenset(tags))
        )
    return results


def cuts(seconds: float, days: float, busiest: float) -> list[Cut]:
    """Return the cut of a trace.

    Args:
        seconds: length of the trace.
        days: most scored days.
        busiest: seconds of the trace until its busiest time.
    """
    most = days * DAY
    if seconds > 40 * DAY:
        known = 14 * DAY
        last = seconds - min(most, seconds - known)
        starts = {"middle": min(seconds / 2, last), "busiest": min(max(busiest - 0.75 * most, known), last)}
        return [
            Cut(start - known, start, int(min(most, seconds - start)), f", {label}")
            for label, start in starts.items()
        ]
    short = seconds / 4 if seconds >= 6 * HOUR else 0.0
    known = 7 * DAY if seconds >= 10 * DAY else short
    return [Cut(0.0, known, int(min(most, seconds - known)))]


def is_smooth(trace: BinTrace, cut: Cut) -> bool:
    """Return whether the scored part of a trace changes slowly."""
    step = max(600.0, trace.step)
    rate = arrivals.rates(trace, cut.start, cut.seconds, step)
    floor = 0.01 * float(rate.mean())
    change = np.abs(np.diff(rate)) / np.maximum(rate[:-1], max(floor, 1e-12))
    return len(change) > 10 and float(np.quantile(change, 0.9)) <= SMOOTH


def _nature(trace: BinTrace, cut: Cut) -> frozenset[str]:
    return frozenset({"smooth"} if is_smooth(trace, cut) else {"restless"})


def _busiest(trace: BinTrace) -> float:
    return trace.step * float(trace.rates.argmax())


def _sparse(name: str, trace: ClientTrace, days: float, most: int) -> Iterator[Recipe]:
    """Yield an even sample of the sparse clients, by their rates."""
    cut = cuts(trace.seconds, days, trace.seconds / 2)[0]

    def scored(client: str) -> float:
        laws = trace.clients[client]
        end = cut.start + cut.seconds
        return sum(law.rate * law.seconds for law in laws if cut.start <= law.start < end)

    sparse = sorted(
        (rate, client)
        for client, rate in mean_rates(trace)
        if rate < SPARSE_RATE and scored(client) >= FEWEST
    )
    chosen = sorted({round(at) for at in np.linspace(0, len(sparse) - 1, min(most, len(sparse)))})
    for at in chosen:
        client = sparse[at][1]
        yield Recipe(
            f"{name} client {client}",
            trace.clients[client],
            cut,
            start=trace.start,
            tags=frozenset({"client", "sparse"}),
        )


def _of_bins(recipe: Recipe, trace: BinTrace, draws: np.random.Generator) -> Workload:
    cut = recipe.cut
    mean = float(arrivals.rates(trace, cut.start, cut.seconds, 60).mean())
    times = 1.0 if recipe.clients or mean >= BUSY_RATE else math.ceil(BUSY_RATE / mean)
    if recipe.clients:
        per_second = arrivals.clients_together(recipe.clients, cut.start, cut.seconds, draws, trace)
    else:
        per_second = arrivals.flow(trace, cut.start, cut.seconds, draws, times)
    known = arrivals.rates(trace, cut.history, cut.start - cut.history, 60) * times
    counts = _straightened(draws.poisson(known * 60).astype(np.float64), recipe)
    rate = float(per_second.mean()) / MEAN_NEED
    replica = replica_of(rate, 1.0)
    load: Flow | Requests = Flow(per_second, per_second)
    if per_second.sum() <= MOST_REQUESTS and trace.rates.mean() * times < FLUID_RATE:
        at = arrivals.within(per_second, draws)
        load = Requests(at, np.ones(len(at)), service_times(len(at), replica.service_seconds, draws))
    return Workload(
        name=recipe.name,
        start=trace.start + cut.start,
        seconds=cut.seconds,
        load=load,
        replica=replica,
        wait=max(replica.service_seconds, SHORTEST_WAIT),
        tags=recipe.tags,
        history=LoadHistory(trace.start + cut.start, 60.0, counts, counts),
        outages=recipe.extra.outages if recipe.extra else (),
    )


def _of_requests(recipe: Recipe, trace: RequestTrace, draws: np.random.Generator) -> Workload:
    cut = recipe.cut
    known = arrivals.cut(trace, cut.history, cut.start - cut.history)
    scored = arrivals.cut(trace, cut.start, cut.seconds)
    diffusion = scored.execution is not None
    work = work_of(scored)
    replica = (
        Replica(1.0, 1, float(work.mean()))
        if diffusion
        else replica_of(float(work.sum()) / cut.seconds / MEAN_NEED, float(work.mean()))
    )
    service = work * replica.concurrency / replica.rate
    if scored.inputs is None and scored.outputs is None and not diffusion:
        service = service_times(len(work), replica.service_seconds, draws)
    before = Requests(known.times, work_of(known), np.empty(0)).per_second(int(cut.start - cut.history))
    return Workload(
        name=recipe.name,
        start=trace.start + cut.start,
        seconds=cut.seconds,
        load=Requests(scored.times, work, service),
        replica=replica,
        wait=DIFFUSION_WAIT if diffusion else max(replica.service_seconds, SHORTEST_WAIT),
        min_replicas=0 if diffusion else 1,
        history=history_of(before, trace.start + cut.start),
        tags=recipe.tags,
    )


def _of_client(recipe: Recipe, laws: Sequence[Law], draws: np.random.Generator) -> Workload:
    cut, replica = recipe.cut, CLIENT_REPLICA
    before = arrivals.client_times(laws, cut.history, cut.start - cut.history, draws)
    times = arrivals.client_times(laws, cut.start, cut.seconds, draws)
    ones = np.ones(len(before))
    known = Requests(before, ones, ones).per_second(int(cut.start - cut.history))
    return Workload(
        name=recipe.name,
        start=recipe.start + cut.start,
        seconds=cut.seconds,
        replica=replica,
        load=Requests(times, np.ones(len(times)), service_times(len(times), replica.service_seconds, draws)),
        wait=SHORTEST_WAIT,
        min_replicas=0,
        history=history_of(known, recipe.start + cut.start),
        tags=recipe.tags,
    )


def replica_of(rate: float, work: float) -> Replica:
    """Return a replica of that rate whose requests of mean `work` take about two seconds."""
    slots = max(round(SERVICE_SECONDS * rate / work), 1)
    return Replica(rate, slots, slots * work / rate)


def work_of(trace: RequestTrace) -> Floats:
    if trace.execution is not None:
        return trace.execution
    work = np.zeros(len(trace.times))
    if trace.inputs is not None:
        work = work + trace.inputs
    if trace.outputs is not None:
        work = work + OUTPUT_WEIGHT * trace.outputs
    return np.maximum(work, 1.0)


def service_times(requests: int, mean: float, draws: np.random.Generator) -> Floats:
    return mean * np.exp(SPREAD * draws.standard_normal(requests) - SPREAD**2 / 2)


def _straightened(counts: Floats, recipe: Recipe) -> Floats:
    """Return the history with its lost span as a straight line."""
    if recipe.extra is None or recipe.extra.lost_history is None:
        return counts
    first, last = (int(moment // 60) for moment in recipe.extra.lost_history)
    counts[first:last] = np.linspace(counts[first - 1], counts[last], last - first)
    return counts
