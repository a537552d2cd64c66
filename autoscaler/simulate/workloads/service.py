"""One service with the unchanged load of one trace, to show how a policy would have sized it. Pure.

Unlike `scenarios`, nothing is multiplied. The last days are simulated, and the time before them is history.
"""

from dataclasses import dataclass, replace

import numpy as np

from autoscaler.simulate.policy_inputs import LoadHistory
from autoscaler.simulate.workloads import arrivals
from autoscaler.simulate.workloads.load import Flow, Replica, Requests
from autoscaler.simulate.workloads.scenarios import (
    CLIENT_REPLICA,
    DIFFUSION_WAIT,
    FLUID_RATE,
    MEAN_NEED,
    replica_of,
    service_times,
    work_of,
)
from autoscaler.simulate.workloads.synthetic import DAY, HOUR
from autoscaler.simulate.workloads.traces import BinTrace, ClientTrace, RequestTrace, Trace, Unreadable
from autoscaler.simulate.workloads.workload import LEAD_SECONDS, SHORTEST_WAIT, Workload, history_of
from serving.pages import figures

DAYS = 2.0
"""Default of simulated days: weekdays differ little, and two cores need less than a minute."""
KNOWN_DAYS = 14.0
"""Most days of history: the longest season of a forecast is a week."""
SHARE = 0.75
"""Default share of a trace of six hours or more that is simulated; the rest is history."""
FOLLOWED = 1_000_000
"""Most requests of a run of single requests; the requests of a larger run flow."""
SHORTEST = 60
"""Seconds of the shortest trace: one minute has a dozen decisions."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The wanted properties of the simulated service; None: derived from the trace."""

    min_replicas: int = 1
    max_replicas: int | None = None
    rate: float | None = None
    """Work per second of one replica."""
    concurrency: int | None = None
    """Concurrent requests of one replica."""
    days: float | None = None
    """Simulated days: the last ones of the trace."""
    history: float | None = None
    """Days of history before those; 0: none."""
    client: str = ""
    """The client, of a trace of clients; empty: all together."""


@dataclass(frozen=True, slots=True)
class Service:
    """The simulated service, and its assumptions."""

    workload: Workload
    max_replicas: int | None
    """Most replicas; None: as many as there is room for."""
    unit: str
    """Unit of work: `requests`, `tokens` or `GPU seconds`."""
    assumed: tuple[str, ...]
    """Assumptions, in sentences."""


def service(name: str, trace: Trace, options: ServiceOptions, seed: int) -> Service:
    """Return the service.

    Args:
        name: for people.
        trace: the load.
        options: wanted properties.
        seed: of what the trace lacks: times within bins, service times.

    Raises:
        Unreadable: the trace is too short for the options, or has no such client.
    """
    span = _span(trace, options)
    draws = np.random.default_rng((seed, 3))
    unit = _unit(trace)
    if isinstance(trace, RequestTrace):
        workload = _of_requests(name, trace, span, options, draws)
    else:
        workload = _of_rates(name, trace, span, options, draws)
    if not workload.load.per_second(workload.seconds).arrivals.any():
        raise Unreadable(f"{trace.name}: no request arrives in the part that would be simulated")
    return Service(workload, options.max_replicas, unit, tuple(_assumed(workload, unit, options)))


@dataclass(frozen=True, slots=True)
class _Span:
    """Positions in the trace, in seconds."""

    known: float
    """Start of the history."""
    start: float
    seconds: int


def _span(trace: Trace, options: ServiceOptions) -> _Span:
    total = trace.seconds
    if total < SHORTEST:
        raise Unreadable(f"{trace.name}: {total:.0f} s are too short: at least {SHORTEST} s are needed")
    share = SHARE if total >= 6 * HOUR else 1.0
    known = 0.0 if options.history is None else options.history * DAY
    longest = total * share if options.history is None else total - known
    if longest < SHORTEST:
        raise Unreadable(
            f"{trace.name}: of {total / DAY:.3g} days, {options.history:g} days of history"
            " leave nothing to simulate"
        )
    seconds = min(total - known, options.days * DAY) if options.days is not None else min(longest, DAYS * DAY)
    seconds = max(seconds, SHORTEST)
    start = total - seconds
    before = min(start, KNOWN_DAYS * DAY if options.history is None else known)
    return _Span(start - before, start, int(seconds))


def _unit(trace: Trace) -> str:
    if isinstance(trace, RequestTrace):
        if trace.execution is not None:
            return "GPU seconds"
        if trace.inputs is not None or trace.outputs is not None:
            return "tokens"
    return "requests"


def _of_rates(
    name: str, trace: BinTrace | ClientTrace, span: _Span, options: ServiceOptions, draws: np.random.Generator
) -> Workload:
    """Return a service of bins, or of clients."""
    if isinstance(trace, BinTrace):
        per_second = arrivals.flow(trace, span.start, span.seconds, draws)
        known = arrivals.rates(trace, span.known, span.start - span.known, 60) * 60
        counts = known if trace.step <= 60 else draws.poisson(known).astype(np.float64)
        mean = float(trace.rates.mean())
    else:
        client = _chosen(trace, options.client)
        per_second = arrivals.clients_together(client, span.start, span.seconds, draws)
        before = arrivals.clients_together(client, span.known, int(span.start - span.known), draws)
        counts = history_of(Flow(before, before), 0).arrivals
        mean = float(per_second.mean())
    replica = _replica(float(per_second.mean()), 1.0, options)
    load: Flow | Requests = Flow(per_second, per_second)
    if per_second.sum() <= FOLLOWED and mean < FLUID_RATE:
        at = arrivals.within(arrivals.whole(per_second, draws), draws)
        load = Requests(at, np.ones(len(at)), service_times(len(at), replica.service_seconds, draws))
    start = trace.start + span.start
    return Workload(
        name=name,
        start=start,
        seconds=span.seconds,
        load=load,
        replica=replica,
        wait=max(replica.service_seconds, SHORTEST_WAIT),
        min_replicas=options.min_replicas,
        history=LoadHistory(start, 60.0, counts, counts),
        lead=_lead(span),
    )


def _of_requests(
    name: str, trace: RequestTrace, span: _Span, options: ServiceOptions, draws: np.random.Generator
) -> Workload:
    known = arrivals.cut(trace, span.known, span.start - span.known)
    load = arrivals.cut(trace, span.start, span.seconds)
    if not len(load.times):
        raise Unreadable(f"{trace.name}: no request arrives in the part that would be simulated")
    work = work_of(load)
    diffusion = load.execution is not None
    replica = _replica(float(work.sum()) / span.seconds, float(work.mean()), options)
    if diffusion and options.rate is None:
        replica = Replica(1.0, 1, float(work.mean()))
    service = work * replica.concurrency / replica.rate
    if load.inputs is None and load.outputs is None and not diffusion:
        service = service_times(len(work), replica.service_seconds, draws)
    before = Requests(known.times, work_of(known), np.empty(0)).per_second(int(span.start - span.known))
    start = trace.start + span.start
    return Workload(
        name=name,
        start=start,
        seconds=span.seconds,
        load=Requests(load.times, work, service),
        replica=replica,
        wait=DIFFUSION_WAIT if diffusion else max(replica.service_seconds, SHORTEST_WAIT),
        min_replicas=options.min_replicas,
        history=history_of(before, start),
        lead=_lead(span),
    )


def _chosen(trace: ClientTrace, client: str) -> ClientTrace:
    if not client:
        return trace
    if client not in trace.clients:
        known = ", ".join(list(trace.clients)[:10])
        raise Unreadable(f"{trace.name}: there is no client {client!r}; there are {known}, ...")
    return replace(trace, clients={client: trace.clients[client]})


def _replica(rate: float, work: float, options: ServiceOptions) -> Replica:
    """Return a replica by the options, else one of which the load needs 15 on the mean, with a least size.

    Args:
        rate: mean arriving work per second.
        work: mean work of a request.
        options: wanted properties of a replica.
    """
    usual = replica_of(options.rate or max(rate / MEAN_NEED, CLIENT_REPLICA.rate * work), work)
    slots = options.concurrency or usual.concurrency
    return Replica(usual.rate, slots, slots * work / usual.rate)


def _lead(span: _Span) -> int:
    return min(LEAD_SECONDS, span.seconds // 10)


def _assumed(workload: Workload, unit: str, options: ServiceOptions) -> list[str]:
    replica, notes = workload.replica, []
    if options.rate is None:
        mean = float(workload.load.per_second(workload.seconds).work.mean()) / replica.rate
        notes.append(
            f"A replica takes {figures.number(replica.rate)} {unit} per second, so that the load needs"
            f" {figures.number(mean)} on the mean; --capacity says what yours takes."
        )
    if options.concurrency is None:
        notes.append(
            f"It serves {figures.count(replica.concurrency, 'request')} at the same time, each for"
            f" {figures.duration(replica.service_seconds)} on the mean;"
            " --concurrency says how many yours serves."
        )
    if options.max_replicas is None:
        notes.append("There is room for three times the replicas that the peak needs; --max bounds them.")
    return notes
