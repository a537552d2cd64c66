"""One service with the load of one trace, for `slipway autoscale simulate`. Pure.

The last days of the trace are simulated, and the time before them is the history. Unlike in `scenarios`,
rates are never multiplied, and the user can set the size of a replica.
"""

import math
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
    Cut,
    diffusion_replica,
    flow_of,
    random_values,
    replica_of,
    requests_of_one_unit,
    service_of,
    work_of,
)
from autoscaler.simulate.workloads.traces import (
    DAY,
    HOUR,
    BinTrace,
    ClientTrace,
    RequestTrace,
    Trace,
    UnreadableTrace,
)
from autoscaler.simulate.workloads.workload import LEAD_SECONDS, Workload, allowed_wait, history_of
from serving.report_pages import formatting

DAYS = 2.0
"""Default of simulated days: weekdays differ little, and two cores need less than a minute."""
HISTORY_DAYS = 14.0
"""Most days of history by default: the longest season of a forecast is a week."""
SHARE = 0.75
"""Most of a trace of six hours or more that is simulated by default; the rest is history, up to
`HISTORY_DAYS`."""
MOST_REQUESTS = 1_000_000
"""A run of a trace of bins or of clients with more requests is a `Flow`, which has sums of each second; a run
with fewer simulates each request."""
SHORTEST = 60
"""Least seconds of a trace and of a run: a policy makes a dozen decisions in them."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The options of the simulated service; None: derived from the trace."""

    min_replicas: int = 1
    max_replicas: int | None = None
    rate: float | None = None
    """Work per second of one replica, in `Service.unit`."""
    concurrency: int | None = None
    """Concurrent requests of one replica."""
    days: float | None = None
    """Simulated days, up to the end of the trace."""
    history: float | None = None
    """Days of history before the simulated days; 0: none."""
    client: str = ""
    """The only simulated client of a `ClientTrace`; empty: all clients together."""


@dataclass(frozen=True, slots=True)
class Service:
    """The simulated service, and the assumptions that a report names."""

    workload: Workload
    max_replicas: int | None
    """Most replicas; None: `comparison.yardstick` derives the limit from the highest need."""
    unit: str
    """Unit of work: `requests`, `tokens` or `GPU seconds`."""
    assumed: tuple[str, ...]
    """One sentence for each property of a replica, and for the limit, that the options do not give."""


def service(name: str, trace: Trace, options: ServiceOptions, seed: int) -> Service:
    """Return the service that has the load of a trace.

    Args:
        name: of the workload, for reports.
        trace: the load.
        options: the properties that the user has set.
        seed: of the values that the trace lacks: times within bins, service times.

    Raises:
        UnreadableTrace: the trace is too short for the options, has no such client, or no request in the run.
    """
    cut = _cut(trace, options)
    draws = random_values(seed)
    unit = _unit(trace)
    if isinstance(trace, RequestTrace):
        workload = _of_requests(name, trace, cut, options, draws)
    else:
        workload = _of_rates(name, trace, cut, options, draws)
    if not workload.load.per_second(workload.seconds).arrivals.any():
        raise UnreadableTrace(f"{trace.name}: no request arrives in the part that would be simulated")
    return Service(workload, options.max_replicas, unit, tuple(_assumed(workload, unit, options)))


def _cut(trace: Trace, options: ServiceOptions) -> Cut:
    """Return the cut of the trace by the options: the run ends with the trace; the history, of whole minutes,
    ends where the run begins.
    """
    total = trace.seconds
    if total < SHORTEST:
        raise UnreadableTrace(f"{trace.name}: {total:.0f} s are too short: at least {SHORTEST} s are needed")
    if isinstance(trace, RequestTrace):
        total = math.floor(total) + 1.0  # the last request is in the last second
    if options.history is None:
        history = 0.0  # set below to all that precedes the run
        longest = total * (SHARE if total >= 6 * HOUR else 1.0)
    else:
        history = options.history * DAY
        longest = total - history
        if longest < SHORTEST:
            raise UnreadableTrace(
                f"{trace.name}: of {total / DAY:.3g} days, {options.history:g} days of history"
                " leave nothing to simulate"
            )
    seconds = min(longest, DAYS * DAY) if options.days is None else min(total - history, options.days * DAY)
    seconds = max(int(seconds), SHORTEST)
    start = total - seconds
    if options.history is None:
        history = HISTORY_DAYS * DAY
    return Cut(history_start=start - min(start, history) // 60 * 60, start=start, seconds=seconds)


def _unit(trace: Trace) -> str:
    if isinstance(trace, RequestTrace):
        if trace.execution is not None:
            return "GPU seconds"
        if trace.inputs is not None or trace.outputs is not None:
            return "tokens"
    return "requests"


def _of_rates(
    name: str, trace: BinTrace | ClientTrace, cut: Cut, options: ServiceOptions, draws: np.random.Generator
) -> Workload:
    """Return the workload of a trace of bins or of clients; each request is one unit of work."""
    if isinstance(trace, BinTrace):
        per_second = arrivals.flow(trace, cut.start, cut.seconds, draws)
        expected = arrivals.rates(trace, cut.history_start, cut.history_seconds, 60) * 60
        # Bins of a minute or less have the recorded requests; interpolated rates lack the chance of arrivals.
        per_minute = expected if trace.step <= 60 else draws.poisson(expected).astype(np.float64)
    else:
        clients = _chosen(trace, options.client)
        per_second = arrivals.clients_together(clients, cut.start, cut.seconds, draws)
        known = arrivals.clients_together(clients, cut.history_start, int(cut.history_seconds), draws)
        per_minute = history_of(Flow(arrivals=known, work=known), 0).arrivals
    mean_rate = float(per_second.mean())
    replica = _replica(_usual(mean_rate, 1.0, options), 1.0, options)
    load: Flow | Requests = Flow(arrivals=per_second, work=per_second)
    if per_second.sum() <= MOST_REQUESTS and mean_rate < FLUID_RATE:
        times = arrivals.within(arrivals.whole(per_second, draws), draws)
        load = requests_of_one_unit(times, replica.service_seconds, draws)
    start = trace.start + cut.start
    return Workload(
        name=name,
        start=start,
        seconds=cut.seconds,
        load=load,
        replica=replica,
        wait=allowed_wait(replica),
        min_replicas=options.min_replicas,
        history=LoadHistory(end=start, step=60.0, arrivals=per_minute, work=per_minute),
        lead=_lead(cut),
    )


def _of_requests(
    name: str, trace: RequestTrace, cut: Cut, options: ServiceOptions, draws: np.random.Generator
) -> Workload:
    """Return the workload of a trace of single requests."""
    known = arrivals.cut(trace, cut.history_start, cut.history_seconds)
    simulated = arrivals.cut(trace, cut.start, cut.seconds)
    if not len(simulated.times):
        raise UnreadableTrace(f"{trace.name}: no request arrives in the part that would be simulated")
    work = work_of(simulated)
    diffusion = simulated.execution is not None
    mean_work = float(work.mean())
    if diffusion and options.rate is None:
        usual = diffusion_replica(work)
    else:
        usual = _usual(float(work.sum()) / cut.seconds, mean_work, options)
    replica = _replica(usual, mean_work, options)
    start = trace.start + cut.start
    return Workload(
        name=name,
        start=start,
        seconds=cut.seconds,
        load=Requests(times=simulated.times, work=work, service=service_of(simulated, work, replica, draws)),
        replica=replica,
        wait=DIFFUSION_WAIT if diffusion else allowed_wait(replica),
        min_replicas=options.min_replicas,
        history=history_of(flow_of(known, int(cut.history_seconds)), start),
        lead=_lead(cut),
    )


def _chosen(trace: ClientTrace, client: str) -> ClientTrace:
    """Return the trace with this client alone; with all clients if `client` is empty."""
    if not client:
        return trace
    if client not in trace.clients:
        known = ", ".join(list(trace.clients)[:10])
        raise UnreadableTrace(f"{trace.name}: there is no client {client!r}; there are {known}, ...")
    return replace(trace, clients={client: trace.clients[client]})


def _usual(rate: float, work: float, options: ServiceOptions) -> Replica:
    """Return a replica of the requested rate. By default `MEAN_NEED` replicas serve the load, but a replica
    is no smaller than `CLIENT_REPLICA`: a small load needs fewer.

    Args:
        rate: mean arriving work per second.
        work: mean work of a request.
        options: the properties that the user has set.
    """
    least_rate = CLIENT_REPLICA.rate * work
    return replica_of(rate=options.rate or max(rate / MEAN_NEED, least_rate), work=work)


def _replica(usual: Replica, work: float, options: ServiceOptions) -> Replica:
    """Return the replica with the requested concurrency, by default that of `usual`; `work` is the mean of a
    request.
    """
    slots = options.concurrency or usual.concurrency
    return Replica(rate=usual.rate, concurrency=slots, service_seconds=slots * work / usual.rate)


def _lead(cut: Cut) -> int:
    """Return the unscored seconds at the start of the run: at most a tenth of it."""
    return min(LEAD_SECONDS, cut.seconds // 10)


def _assumed(workload: Workload, unit: str, options: ServiceOptions) -> list[str]:
    """Return the sentences of `Service.assumed`."""
    replica, notes = workload.replica, []
    if options.rate is None:
        mean = float(workload.load.per_second(workload.seconds).work.mean()) / replica.rate
        notes.append(
            f"A replica takes {formatting.number(replica.rate)} {unit} per second, so that the load needs"
            f" {formatting.number(mean)} on the mean; --capacity says what yours takes."
        )
    if options.concurrency is None:
        notes.append(
            f"It serves {formatting.count(replica.concurrency, 'request')} at the same time, each for"
            f" {formatting.duration(replica.service_seconds)} on the mean;"
            " --concurrency says how many yours serves."
        )
    if options.max_replicas is None:
        notes.append("There is room for three times the replicas that the peak needs; --max bounds them.")
    return notes
