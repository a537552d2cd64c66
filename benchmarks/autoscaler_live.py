"""An hour of a trace in minutes, against real replicas: up, down, to zero and back, with three scalers.

    slipway   the autoscaler with `minReplicas: 0, maxReplicas: 10` and nothing else
    fixed     what the peak needs, all the time
    kpa       Knative's formula, every two seconds, from the same pages and by the same scale subresource

The whole product runs (`slipway up`). A replica is a process with known slots and service time that loads its
model for some seconds; it uses next to no processor time, so two cores carry ten replicas. A separate process
sends the load as an open loop: the busiest hour of a trace, compressed, with a silence longer than the
keep-alive. It starts with one replica, as every new endpoint does. Only the load is compressed: start-up
times, ticks, windows and keep-alive have their real length, so a minute of the trace's rise passes in
seconds.

A violation is a request that waits longer than its own service time and longer than two seconds.
Replica-seconds count from a Pod's creation to its removal. The first run is then simulated with its own
arrivals and start-up times; the bars on the simulator's error were set before it was measured.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rig import cold_models, interrupts
from rig.harness import DATA, Bar, percentile, report
from rig.scaling import compressed
from rig.scaling.compressed import Shape
from rig.scaling.foretold import Foretold, foretell
from rig.scaling.live_scaling import Played, ScalingWorld, SlotReplica, timeline, world

from autoscaler.observation import Capacity
from autoscaler.policy.config import PolicyConfig
from autoscaler.simulate.baselines.knative import Kpa
from autoscaler.simulate.policy_inputs import PolicyInputs
from autoscaler.simulate.workloads.workload import SHORTEST_WAIT
from serving.objects import Object

MACHINE = SlotReplica(slots=2, service=0.2, load=3.0)
MOST = 10
FIXED = 7
"""Replicas that the peak needs."""
FULL = Shape(before=160, silence=100, after=80, peak=65.0)
QUICK = Shape(before=15, silence=80, after=6, peak=15.0)
"""A silence of 80 s: the autoscaler keeps the last replica of a new endpoint for 70 s."""
SEED = 1
SECONDS_OFF = 0.15
"""Largest relative error of the simulator in replica-seconds."""
VIOLATIONS_OFF = 2.0
"""Largest error of the simulator in violations, in percentage points."""
NAMES = ("slipway", "fixed", "kpa")


@dataclass(frozen=True)
class Score:
    """The scores of one run."""

    requests: int
    lost: int
    violations: float
    """Percent."""
    cold: int
    """Requests that arrived without a ready replica."""
    p50: float
    """Seconds of wait, like the next two."""
    p99: float
    longest: float
    replica_seconds: float
    leaving_seconds: float
    """Those with a terminating replica."""
    most: int
    """Replicas at a time."""
    starts: int
    startup: float
    """Seconds, the median."""
    came_back: bool
    """Whether there was no replica in the silence, and one after it."""


def score(played: Played, shape: Shape, patience: float) -> Score:
    """Score a run."""
    start, end, lives = played.start, played.start + played.seconds, played.lives
    waits = [max(answer.latency - MACHINE.service, 0.0) for answer in played.answers]
    late = sum(wait > patience for wait in waits)
    starts = lives.starts()
    silence = range(shape.before, shape.before + shape.silence)
    return Score(
        requests=len(waits),
        lost=sum(answer.status != 200 for answer in played.answers),
        violations=100 * late / len(waits),
        cold=sum(lives.ready(start + answer.at) == 0 for answer in played.answers),
        p50=percentile(waits, 50),
        p99=percentile(waits, 99),
        longest=max(waits),
        replica_seconds=lives.seconds(start, end),
        leaving_seconds=lives.leaving_seconds(start, end),
        most=max(lives.alive(start + second) for second in range(shape.seconds)),
        starts=len(starts),
        startup=percentile(starts, 50),
        came_back=any(lives.alive(start + second) == 0 for second in silence) and lives.ready(end) > 0,
    )


async def play(place: ScalingWorld, name: str, folder: Path, shape: Shape, moments: list[float]) -> Played:
    """Run the load once with this scaler."""
    scale: Object = {"minReplicas": 0, "maxReplicas": MOST}
    if name == "fixed":
        scale = {"minReplicas": FIXED, "maxReplicas": FIXED}
    elif name == "kpa":
        scale["prediction"] = {"mode": "Observe"}
    async with place.watched(name) as lives:
        await place.deploy(name, folder / name, scale)
        await place.until_ready(name, FIXED if name == "fixed" else 1)
        print(f"{name}: {len(moments)} requests in {shape.seconds} s", file=sys.stderr, flush=True)
        if name == "kpa":
            terms = PolicyInputs(Capacity(MACHINE.rate, MACHINE.slots), MACHINE.service, 0, MOST)
            async with place.driven(name, Kpa(terms)):
                played = await place.play(name, moments, shape.seconds, lives)
        else:
            played = await place.play(name, moments, shape.seconds, lives)
    await place.remove(name)
    return played


async def measure(shape: Shape, moments: list[float], names: Sequence[str]) -> dict[str, Played]:
    runs = {}
    with cold_models.folder() as folder:
        async with world(folder, MACHINE) as place:
            for name in names:
                runs[name] = await play(place, name, folder, shape, moments)
                run = runs[name]
                moments_sent = [answer.at for answer in run.answers]
                lines = timeline("req/s", moments_sent, run.lives, run.start, run.seconds, run.changes)
                print("\n".join(lines), file=sys.stderr, flush=True)
    return runs


def bars(scores: dict[str, Score], foretold: Foretold) -> list[Bar]:
    ours, fixed, kpa = scores["slipway"], scores["fixed"], scores["kpa"]
    lost = sum(score.lost for score in scores.values())
    seconds_off = abs(foretold.replica_seconds / ours.replica_seconds - 1)
    violations_off = abs(foretold.violations - ours.violations)
    cheaper = ours.replica_seconds < fixed.replica_seconds
    is_worse = ours.violations > kpa.violations and ours.replica_seconds > kpa.replica_seconds
    return [
        Bar("requests lost", lost, 0, lost == 0),
        Bar(
            "replica-seconds over the fixed count's", ours.replica_seconds / fixed.replica_seconds, 1, cheaper
        ),
        Bar("1 where KPA is better in both violations and replica-seconds", int(is_worse), 0, not is_worse),
        Bar("1 where it went to zero and came back", int(ours.came_back), 1, ours.came_back),
        Bar(
            "replica-seconds: share that the simulator is off",
            seconds_off,
            SECONDS_OFF,
            seconds_off <= SECONDS_OFF,
        ),
        Bar(
            "violations: percentage points that the simulator is off",
            violations_off,
            VIOLATIONS_OFF,
            violations_off <= VIOLATIONS_OFF,
        ),
    ]


def show(scores: dict[str, Score], foretold: Foretold) -> None:
    table = Table(
        "", "% late", "replica-s", "lost", "cold", "wait p50", "p99", "longest", "most", "starts", "a start"
    )
    for name, result in scores.items():
        table.add_row(
            name,
            f"{result.violations:.2f}",
            f"{result.replica_seconds:.0f}",
            str(result.lost),
            str(result.cold),
            f"{result.p50:.2f}",
            f"{result.p99:.2f}",
            f"{result.longest:.2f}",
            str(result.most),
            str(result.starts),
            f"{result.startup:.1f}",
        )
    table.add_row(
        "slipway, simulated",
        f"{foretold.violations:.2f}",
        f"{foretold.replica_seconds:.0f}",
        "",
        f"{foretold.cold:.0f}",
    )
    Console(stderr=True, width=140).print(table)


def main() -> None:
    options = _options()
    shape = QUICK if options.quick else FULL
    source = compressed.trace(options.traces, options.trace)
    moments: list[float] = compressed.moments(source, shape, SEED).tolist()
    patience = max(MACHINE.service, SHORTEST_WAIT)
    played = interrupts.run(measure(shape, moments, NAMES))
    scores = {name: score(run, shape, patience) for name, run in played.items()}
    config = PolicyConfig(min_replicas=0, max_replicas=MOST)
    foretold = foretell(played["slipway"], MACHINE, patience, config)
    show(scores, foretold)
    held = bars(scores, foretold)
    for bar in held:
        print(
            f"{'met   ' if bar.met else 'MISSED'} {bar.what}: {bar.value:.4g} (bar {bar.bar:g})",
            file=sys.stderr,
        )
    results = {
        "trace": options.trace,
        "fasterThanTheTrace": round(shape.factor, 1),
        "shape": asdict(shape),
        "replica": asdict(MACHINE),
        "runs": {name: asdict(run) for name, run in scores.items()},
        "simulated": asdict(foretold),
    }
    report("autoscaler_live", results, held)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--traces", type=Path, default=DATA / "traces", help="directory of traces: .csv, .csv.gz"
    )
    parser.add_argument(
        "--trace", default="azure_llm_2023_conv", help="how the name of the trace's file begins"
    )
    parser.add_argument("--quick", action="store_true", help="half a minute of load for each")
    return parser.parse_args()


if __name__ == "__main__":
    main()
