"""The simulation of a recorded run: the same arrivals, replicas, start-up times, ticks and policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.policy.config import PolicyConfig
from autoscaler.policy.sizer import Sizer
from autoscaler.settings import DEFAULTS
from autoscaler.simulate.delivery import Delivery
from autoscaler.simulate.policy import Policy
from autoscaler.simulate.policy_inputs import PolicyInputs
from autoscaler.simulate.run import Run, run
from autoscaler.simulate.startup import Startup
from autoscaler.simulate.workloads.load import Replica, Requests
from autoscaler.simulate.workloads.workload import Workload
from rig.scaling.live_scaling import Played, SlotReplica
from serving import clock

TICK = 5.0
"""Seconds between two ticks of the autoscaler."""
RUNS = 5
"""Simulated runs, whose mean is the prediction: they cover the unknown phase of the ticks."""
READINGS = Delivery(
    every=TICK, shortest=0.0, longest=0.0, missing=0.0, immediate=True, idle_seconds=DEFAULTS.idle_seconds
)
"""As the autoscaler has them on one machine: it asks for the page, and decides."""


@dataclass(frozen=True)
class Foretold:
    """The result of the simulator."""

    violations: float
    """Percent."""
    replica_seconds: float
    cold: float
    between: tuple[tuple[float, float], tuple[float, float]]
    """The least and the most of violations and of replica-seconds, over the runs."""


@dataclass(frozen=True, slots=True)
class _FromOne(Workload):
    """A run that begins with one replica, as the recorded one."""

    def first_replicas(self) -> int:
        return 1


def foretell(played: Played, machine: SlotReplica, patience: float, config: PolicyConfig) -> Foretold:
    """Simulate a recorded run from one replica on.

    Args:
        played: whose arrivals and start-up times are taken.
        machine: what a replica does.
        patience: seconds that a request may wait.
        config: the policy's.
    """
    runs = [
        _run(played, machine, patience, config, phase, seed) for seed, phase in enumerate(tick_phases(played))
    ]
    late = [100 * float((run.waits.seconds > patience).mean()) for run in runs]
    seconds = [run.replica_seconds for run in runs]
    return Foretold(
        violations=float(np.mean(late)),
        replica_seconds=float(np.mean(seconds)),
        cold=float(np.mean([run.waits.cold.sum() for run in runs])),
        between=((min(late), max(late)), (min(seconds), max(seconds))),
    )


def tick_phases(played: Played) -> list[float]:
    """Return the seconds from a tick to the first second of the load, for each run to simulate.

    A change of the count has the time of its tick, in whole seconds, and ticks are five seconds apart: the
    phases lie within one second. Those of a run without such a change lie within all five. A change from zero
    says nothing, as a held request wakes the autoscaler between two ticks.
    """
    times = [
        clock.parse(change["time"]).timestamp() for change in played.changes if change["fromReplicas"] > 0
    ]
    during = [time for time in times if time >= played.unix]
    if not during:
        return [TICK * (run + 0.5) / RUNS for run in range(RUNS)]
    return [(played.unix - min(during) - (run + 0.5) / RUNS) % TICK for run in range(RUNS)]


def _run(
    played: Played, machine: SlotReplica, patience: float, config: PolicyConfig, phase: float, seed: int
) -> Run:
    before = _quiet(played) // TICK * TICK + phase
    quiet = int(before)
    times = np.array([answer.at for answer in played.answers]) + before
    count = len(times)
    workload = _FromOne(
        name="recorded",
        start=played.unix - before,
        seconds=round(played.seconds + before),
        load=Requests(times, np.ones(count), np.full(count, machine.service)),
        replica=Replica(machine.rate, machine.slots, machine.service),
        wait=patience,
        min_replicas=config.min_replicas,
        lead=quiet,
        routed=True,
        ending=_ending(played),
    )
    starts = played.lives.starts()
    return run(
        workload,
        _startup(starts),
        _builder(config, starts[0]),
        limit=config.max_replicas,
        seed=seed,
        delivery=READINGS,
    )


def _quiet(played: Played) -> int:
    """Return the seconds that the first replica was ready before the load: readings without requests, as the
    policy had them."""
    ready = [life.ready for life in played.lives.by_uid.values() if life.ready is not None]
    return max(round(played.start - min(ready)), 0)


def _ending(played: Played) -> float:
    """Return the seconds that a replica takes to end, the median; 0 where none has."""
    took = [
        life.gone - life.leaving
        for life in played.lives.by_uid.values()
        if life.gone is not None and life.leaving is not None
    ]
    return float(np.median(took)) if took else 0.0


def _startup(starts: Sequence[float]) -> Startup:
    """Return the law that draws from the starts that were measured."""
    measured = np.array(starts)
    return Startup("measured", float(np.median(measured)), lambda draws: float(draws.choice(measured)), 0.0)


def _builder(config: PolicyConfig, proof: float) -> Callable[[PolicyInputs], Policy]:
    """Return a factory of the policy at the start of the run: it has observed the start of the proof."""

    def build(terms: PolicyInputs) -> Policy:  # noqa: ARG001 the capacity is to be learned, as it was
        sizer = Sizer(config)
        sizer.startup.learn([proof], ())
        return sizer

    return build
