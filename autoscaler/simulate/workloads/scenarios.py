"""Workloads made of recorded traces, on which benchmarks compare scaling policies. Pure.

Each trace is cut into a history, which the policies know, and the run that follows it and is scored:

- less than 6 hours: no history
- from 6 hours on: the first quarter is history
- from 10 days on: 7 days are history
- more than 40 days: 14 days are history; a run from the middle on, and of a bin trace also one at the busiest
  time

At most 14 days are scored (`days`). A replica's rate is such that the scored load keeps 15 replicas busy on
average. Requests with GPU seconds and single clients have a fixed replica instead. The rates of a bin trace
with few requests are multiplied up to `BUSY_RATE`, as chance would hide the shape of the load.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.simulate.policy_inputs import LoadHistory
from autoscaler.simulate.workloads import arrivals
from autoscaler.simulate.workloads.load import Floats, Flow, Replica, Requests
from autoscaler.simulate.workloads.traces import (
    DAY,
    HOUR,
    BinTrace,
    ClientTrace,
    Law,
    RequestTrace,
    Trace,
    mean_rates,
)
from autoscaler.simulate.workloads.workload import SHORTEST_WAIT, Workload, allowed_wait, history_of

MEAN_NEED = 15.0
"""Replicas that the load keeps busy on average; the rate of a replica is derived from it."""
SERVICE_SECONDS = 2.0
"""Approximate service time of a request; the concurrency of a replica is derived from it."""
SPREAD = math.sqrt(math.log(1 + 0.5**2))
"""Standard deviation of the logarithm of service times with a coefficient of variation of 0.5."""
OUTPUT_WEIGHT = 4.0
"""Work of an output token in input tokens: one GPU reads about 12,000 tokens a second and writes about 3,000
in full batches.
"""
LEAST_GPU_SECONDS = 1e-6
"""Least work of a request with GPU seconds, as a failed one may have 0: it ends after its arrival."""
BUSY_RATE = 10.0
"""Least mean requests per second of a bin trace; the rates of a trace with fewer are multiplied."""
MOST_REQUESTS = 5_000_000
"""Most requests of bins that a run simulates one by one, as `Requests`; a larger load is a `Flow`."""
FLUID_RATE = 50.0
"""Mean requests per second of bins from which on a load is a `Flow`: a single request no longer matters."""
DIFFUSION_WAIT = 30.0
"""Allowed wait in seconds of a request with GPU seconds: an image of a diffusion model."""

CLIENT_REPLICA = Replica(rate=2.0, concurrency=4, service_seconds=2.0)
"""Replica of a sparse client, in requests per second: one replica is enough for its load."""
SPARSE_RATE = 2 / 60
"""Mean requests per second below which a client is sparse."""
FEWEST_REQUESTS = 20
"""Fewest scored requests of a sparse client; a percentage of fewer requests means nothing."""

SMOOTH_STEP = 600.0
"""Least seconds between two loads that `is_smooth` compares."""
SMOOTH_CHANGE = 1 / 3
"""The 90 % quantile of the relative changes from step to step is at most this in a smooth trace."""
SMOOTH_FLOOR = 0.01
"""Share of the mean load; a change is relative to at least this, as the load of a step may be 0."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The history and the run of a trace, in seconds from the start of the trace."""

    history_start: float
    start: float
    """Start of the run, and end of the history."""
    seconds: int
    """Length of the run."""
    label: str = ""
    """Suffix of the workload's name, where a trace has several cuts."""

    @property
    def history_seconds(self) -> float:
        """Length of the history."""
        return self.start - self.history_start


@dataclass(frozen=True, slots=True)
class Recipe:
    """A workload without the random values that the trace lacks."""

    name: str
    trace: RequestTrace | BinTrace | tuple[Law, ...]
    """The load; laws are the windows of one client."""
    cut: Cut
    clients: ClientTrace | None = None
    """Clients whose rates add up to the bins of `trace`; the arrivals are theirs."""
    lost_history: tuple[float, float] | None = None
    """Start and end of a lost span, in seconds of the trace; the policies get a straight line instead."""
    outages: tuple[tuple[float, float], ...] = ()
    """Spans of the run without readings, in seconds from its start."""
    client_trace_start: float = 0.0
    """Unix seconds of the start of the laws' trace."""
    tags: frozenset[str] = frozenset()
    """Kinds of load, by which benchmarks group results: `smooth` or `restless` bins, `requests`, `diffusion`
    (requests with GPU seconds), `client`, `sparse`, `synthetic`.
    """

    def workload(self, seed: int) -> Workload:
        """Return the workload with the random values of `seed`."""
        draws = random_values(seed)
        if isinstance(self.trace, BinTrace):
            return _of_bins(self, self.trace, draws)
        if isinstance(self.trace, RequestTrace):
            return _of_requests(self, self.trace, draws)
        return _of_client(self, self.trace, draws)


def random_values(seed: int) -> np.random.Generator:
    """Return the generator of a workload's random values.

    The second number keeps them independent of the start-up times and readings that `run` draws for `seed`.
    """
    return np.random.default_rng((seed, 3))


def recipes(traces: Mapping[str, Trace], *, days: float = 14, clients: int = 12) -> list[Recipe]:
    """Return one recipe for each cut of a `BinTrace`, one for the first cut of a `RequestTrace`, and one for
    each of some sparse clients of a `ClientTrace`.

    Args:
        traces: by the name that reports show.
        days: most scored days of a trace.
        clients: most sparse clients of one `ClientTrace`.
    """
    client_traces = [trace for trace in traces.values() if isinstance(trace, ClientTrace)]
    results: list[Recipe] = []
    for name, trace in traces.items():
        if isinstance(trace, ClientTrace):
            results += _sparse_clients(name, trace, days, clients)
        elif isinstance(trace, BinTrace):
            source = arrivals.of_clients(trace, client_traces)
            busiest = trace.step * float(trace.rates.argmax())
            results += [
                Recipe(name + cut.label, trace, cut, clients=source, tags=_bin_tags(trace, cut))
                for cut in cuts(trace.seconds, days, busiest)
            ]
        else:
            cut = cuts(trace.seconds, days, trace.seconds / 2)[0]
            tags = {"diffusion", "sparse"} if trace.execution is not None else {"requests"}
            results.append(Recipe(name, trace, cut, tags=frozenset(tags)))
    return results


def cuts(seconds: float, days: float, busiest: float) -> list[Cut]:
    """Return the cuts of a trace: two of more than 40 days, else one.

    Args:
        seconds: length of the trace.
        days: most scored days.
        busiest: seconds from the start of the trace to its busiest time.
    """
    most_scored = days * DAY
    if seconds > 40 * DAY:
        history = 14 * DAY
        latest_start = seconds - min(most_scored, seconds - history)
        # Three quarters of the busiest run lead up to the busiest time.
        starts = {
            "middle": min(seconds / 2, latest_start),
            "busiest": min(max(busiest - 0.75 * most_scored, history), latest_start),
        }
        return [
            Cut(
                history_start=start - history,
                start=start,
                seconds=int(min(most_scored, seconds - start)),
                label=f", {label}",
            )
            for label, start in starts.items()
        ]
    if seconds >= 10 * DAY:
        history = 7 * DAY
    elif seconds >= 6 * HOUR:
        history = seconds / 4
    else:
        history = 0.0
    return [Cut(history_start=0.0, start=history, seconds=int(min(most_scored, seconds - history)))]


def is_smooth(trace: BinTrace, cut: Cut) -> bool:
    """Return whether the load of the run changes slowly; a run of few steps is not smooth."""
    step = max(SMOOTH_STEP, trace.step)
    rate = arrivals.rates(trace, cut.start, cut.seconds, step)
    floor = max(SMOOTH_FLOOR * float(rate.mean()), 1e-12)
    changes = np.abs(np.diff(rate)) / np.maximum(rate[:-1], floor)
    return len(changes) > 10 and float(np.quantile(changes, 0.9)) <= SMOOTH_CHANGE


def _bin_tags(trace: BinTrace, cut: Cut) -> frozenset[str]:
    return frozenset({"smooth"} if is_smooth(trace, cut) else {"restless"})


def _sparse_clients(name: str, trace: ClientTrace, days: float, most: int) -> Iterator[Recipe]:
    """Yield the recipes of at most `most` sparse clients, at even distances in the order of their rates."""
    cut = cuts(trace.seconds, days, trace.seconds / 2)[0]

    def scored_requests(client: str) -> float:
        end = cut.start + cut.seconds
        return sum(law.rate * law.seconds for law in trace.clients[client] if cut.start <= law.start < end)

    by_rate = sorted(
        (rate, client)
        for client, rate in mean_rates(trace)
        if rate < SPARSE_RATE and scored_requests(client) >= FEWEST_REQUESTS
    )
    even_positions = np.linspace(0, len(by_rate) - 1, min(most, len(by_rate)))
    for position in sorted({round(each) for each in even_positions}):
        _, client = by_rate[position]
        yield Recipe(
            f"{name} client {client}",
            trace.clients[client],
            cut,
            client_trace_start=trace.start,
            tags=frozenset({"client", "sparse"}),
        )


def _of_bins(recipe: Recipe, trace: BinTrace, draws: np.random.Generator) -> Workload:
    cut = recipe.cut
    mean_rate = float(arrivals.rates(trace, cut.start, cut.seconds, 60).mean())
    multiplier = 1.0 if recipe.clients or mean_rate >= BUSY_RATE else math.ceil(BUSY_RATE / mean_rate)
    if recipe.clients:
        per_second = arrivals.clients_together(recipe.clients, cut.start, cut.seconds, draws, trace)
    else:
        per_second = arrivals.flow(trace, cut.start, cut.seconds, draws, multiplier)
    history_rates = arrivals.rates(trace, cut.history_start, cut.history_seconds, 60) * multiplier
    per_minute = _straightened(draws.poisson(history_rates * 60).astype(np.float64), recipe)
    replica = replica_of(rate=float(per_second.mean()) / MEAN_NEED, work=1.0)
    load: Flow | Requests = Flow(arrivals=per_second, work=per_second)
    if per_second.sum() <= MOST_REQUESTS and trace.rates.mean() * multiplier < FLUID_RATE:
        load = requests_of_one_unit(arrivals.within(per_second, draws), replica.service_seconds, draws)
    start = trace.start + cut.start
    return Workload(
        name=recipe.name,
        start=start,
        seconds=cut.seconds,
        load=load,
        replica=replica,
        wait=allowed_wait(replica),
        tags=recipe.tags,
        history=LoadHistory(end=start, step=60.0, arrivals=per_minute, work=per_minute),
        outages=recipe.outages,
    )


def _of_requests(recipe: Recipe, trace: RequestTrace, draws: np.random.Generator) -> Workload:
    cut = recipe.cut
    known = arrivals.cut(trace, cut.history_start, cut.history_seconds)
    scored = arrivals.cut(trace, cut.start, cut.seconds)
    diffusion = scored.execution is not None
    work = work_of(scored)
    if diffusion:
        replica = diffusion_replica(work)
    else:
        replica = replica_of(rate=float(work.sum()) / cut.seconds / MEAN_NEED, work=float(work.mean()))
    start = trace.start + cut.start
    return Workload(
        name=recipe.name,
        start=start,
        seconds=cut.seconds,
        load=Requests(times=scored.times, work=work, service=service_of(scored, work, replica, draws)),
        replica=replica,
        wait=DIFFUSION_WAIT if diffusion else allowed_wait(replica),
        min_replicas=0 if diffusion else 1,
        history=history_of(flow_of(known, int(cut.history_seconds)), start),
        tags=recipe.tags,
    )


def _of_client(recipe: Recipe, laws: Sequence[Law], draws: np.random.Generator) -> Workload:
    cut, replica = recipe.cut, CLIENT_REPLICA
    known_times = arrivals.client_times(laws, cut.history_start, cut.history_seconds, draws)
    times = arrivals.client_times(laws, cut.start, cut.seconds, draws)
    ones = np.ones(len(known_times))
    known = Requests(times=known_times, work=ones, service=ones).per_second(int(cut.history_seconds))
    start = recipe.client_trace_start + cut.start
    return Workload(
        name=recipe.name,
        start=start,
        seconds=cut.seconds,
        replica=replica,
        load=requests_of_one_unit(times, replica.service_seconds, draws),
        wait=SHORTEST_WAIT,
        min_replicas=0,
        history=history_of(known, start),
        tags=recipe.tags,
    )


def replica_of(rate: float, work: float) -> Replica:
    """Return a replica whose requests take about `SERVICE_SECONDS`.

    Args:
        rate: work per second of the replica.
        work: mean work of a request.
    """
    slots = max(round(SERVICE_SECONDS * rate / work), 1)
    return Replica(rate=rate, concurrency=slots, service_seconds=slots * work / rate)


def diffusion_replica(gpu_seconds: Floats) -> Replica:
    """Return a replica with one GPU, which serves one request at a time."""
    return Replica(rate=1.0, concurrency=1, service_seconds=float(gpu_seconds.mean()))


def work_of(trace: RequestTrace) -> Floats:
    """Return the work of each request: GPU seconds, else input tokens with weighted output tokens, else 1."""
    if trace.execution is not None:
        return np.maximum(trace.execution, LEAST_GPU_SECONDS)
    work = np.zeros(len(trace.times))
    if trace.inputs is not None:
        work = work + trace.inputs
    if trace.outputs is not None:
        work = work + OUTPUT_WEIGHT * trace.outputs
    return np.maximum(work, 1.0)


def flow_of(trace: RequestTrace, seconds: int) -> Flow:
    """Return the requests and their work in each of the first `seconds` of the trace."""
    no_service = np.empty(0)  # sums per second need no service times
    return Requests(times=trace.times, work=work_of(trace), service=no_service).per_second(seconds)


def service_of(trace: RequestTrace, work: Floats, replica: Replica, draws: np.random.Generator) -> Floats:
    """Return the service seconds of each request in a slot: by its `work`, or random where all work is 1."""
    if trace.execution is None and trace.inputs is None and trace.outputs is None:
        return service_times(len(work), replica.service_seconds, draws)
    return work * replica.concurrency / replica.rate


def requests_of_one_unit(times: Floats, service_seconds: float, draws: np.random.Generator) -> Requests:
    """Return requests of work 1 that arrive at `times` and take random times of mean `service_seconds`."""
    service = service_times(len(times), service_seconds, draws)
    return Requests(times=times, work=np.ones(len(times)), service=service)


def service_times(requests: int, mean: float, draws: np.random.Generator) -> Floats:
    """Return a log-normal service time of each request, in seconds, with this `mean`."""
    return mean * np.exp(SPREAD * draws.standard_normal(requests) - SPREAD**2 / 2)


def _straightened(per_minute: Floats, recipe: Recipe) -> Floats:
    """Return the history with a straight line over the span that the recipe has lost."""
    if recipe.lost_history is None:
        return per_minute
    first, last = (int(second // 60) for second in recipe.lost_history)
    per_minute[first:last] = np.linspace(per_minute[first - 1], per_minute[last], last - first)
    return per_minute
