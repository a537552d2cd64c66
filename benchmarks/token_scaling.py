"""An hour of conversations in minutes, against replicas of a language model: sized by waiting tokens.

    queue     the autoscaler with `TokenQueueDepth`, `minReplicas: 0, maxReplicas: 10`
    rate      the autoscaler with `TokensPerSecond` and what it learns of a replica
    fixed     what the peak needs, all the time

As `autoscaler_live.py`, with streamed chats: the busiest hour of a trace, compressed, with a silence longer
than the keep-alive. A replica is a process of known speed that reads prompts, and generates a token of each
of its sequences at a steady pace; an engine's manifest starts it. A violation is a chat whose first token
comes more than two seconds after its prompt could have been read.
"""

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rig import cold_models, interrupts
from rig.harness import DATA, Bar, percentile, report
from rig.scaling import compressed, token_scaling
from rig.scaling.compressed import Shape
from rig.scaling.live_scaling import timeline
from rig.scaling.token_scaling import PlayedChats, TokenMachine, TokenWorld

from serving.objects import Object

MACHINE = TokenMachine(slots=4, step=0.1, prefill=2000.0, load=3.0)
MOST = 10
FIXED = 8
"""Replicas of the fixed count: the peak of 12 chats per second, 2.1 s each, needs 6.3 on the mean."""
TARGET = 250
"""Waiting tokens of a replica: some 40 of its four sequences, and a chat or two that wait, of 150 each."""
FULL = Shape(before=160, silence=140, after=80, peak=12.0)
QUICK = Shape(before=20, silence=80, after=8, peak=5.0)
METRICS: dict[str, Object] = {
    "queue": {"type": "TokenQueueDepth", "target": str(TARGET)},
    "rate": {"type": "TokensPerSecond"},
}
PATIENCE_SECONDS = 2.0
SEED = 1


@dataclass(frozen=True)
class Score:
    chats: int
    lost: int
    violations: float
    """Percent."""
    first_p50: float
    """Seconds until the first token, like the next two."""
    first_p99: float
    longest: float
    replica_seconds: float
    most: int
    starts: int
    came_back: bool
    """Whether there was no replica in the silence, and one after it."""


def score(played: PlayedChats, shape: Shape) -> Score:
    start, end, lives = played.start, played.start + played.seconds, played.lives
    first = [answer.first for answer in played.answers if answer.status == 200]
    late = sum(seconds > PATIENCE_SECONDS for seconds in first) + len(played.answers) - len(first)
    silence = range(shape.before, shape.before + shape.silence)
    return Score(
        chats=len(played.answers),
        lost=sum(answer.status != 200 for answer in played.answers),
        violations=100 * late / len(played.answers),
        first_p50=percentile(first, 50),
        first_p99=percentile(first, 99),
        longest=max(first),
        replica_seconds=lives.seconds(start, end),
        most=max(lives.alive(start + second) for second in range(shape.seconds)),
        starts=len(lives.starts()),
        came_back=any(lives.alive(start + second) == 0 for second in silence) and lives.ready(end) > 0,
    )


async def play(place: TokenWorld, name: str, folder: Path, shape: Shape, moments: list[float]) -> PlayedChats:
    scale: Object = {"minReplicas": 0, "maxReplicas": MOST}
    if name == "fixed":
        scale = {"minReplicas": FIXED, "maxReplicas": FIXED}
    else:
        scale["metrics"] = [METRICS[name]]
    async with place.watched(name) as lives:
        await place.deploy(name, folder / name, scale)
        await place.until_ready(name, FIXED if name == "fixed" else 1)
        print(f"{name}: {len(moments)} chats in {shape.seconds} s", file=sys.stderr, flush=True)
        played = await place.talk(name, token_scaling.chats(moments, SEED), shape.seconds, lives)
    await place.remove(name)
    return played


async def measure(shape: Shape, moments: list[float]) -> dict[str, PlayedChats]:
    runs = {}
    with cold_models.folder() as folder:
        async with token_scaling.token_world(folder, MACHINE) as place:
            for name in (*METRICS, "fixed"):
                runs[name] = await play(place, name, folder, shape, moments)
                run = runs[name]
                moments_sent = [answer.at for answer in run.answers]
                lines = timeline("chats/s", moments_sent, run.lives, run.start, run.seconds, run.changes)
                print("\n".join(lines), file=sys.stderr, flush=True)
    return runs


def bars(scores: dict[str, Score]) -> list[Bar]:
    lost = sum(result.lost for result in scores.values())
    held = [Bar("chats lost", lost, 0, lost == 0)]
    for name in METRICS:
        ours = scores[name]
        ratio = ours.replica_seconds / scores["fixed"].replica_seconds
        held += [
            Bar(f"{name}: replica-seconds over the fixed count's", ratio, 1, ratio < 1),
            Bar(f"{name}: 1 where it went to zero and came back", int(ours.came_back), 1, ours.came_back),
        ]
    return held


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--traces", type=Path, default=DATA / "traces", help="directory of traces: .csv, .csv.gz"
    )
    parser.add_argument("--trace", default="azure_llm_2023_conv", help="how its file's name begins")
    parser.add_argument("--quick", action="store_true", help="half a minute of load for each")
    options = parser.parse_args()
    shape = QUICK if options.quick else FULL
    source = compressed.trace(options.traces, options.trace)
    moments: list[float] = compressed.moments(source, shape, SEED).tolist()
    played = interrupts.run(measure(shape, moments))
    scores = {name: score(run, shape) for name, run in played.items()}
    table = Table("", "% late", "replica-s", "lost", "first p50", "p99", "longest", "most", "starts")
    for name, result in scores.items():
        figures = (result.violations, result.replica_seconds, result.lost, result.first_p50, result.first_p99)
        table.add_row(
            name, *(f"{value:.2f}" for value in (*figures, result.longest, result.most, result.starts))
        )
    Console(stderr=True, width=120).print(table)
    results = {
        "trace": options.trace,
        "shape": asdict(shape),
        "replica": asdict(MACHINE),
        "runs": {name: asdict(result) for name, result in scores.items()},
    }
    report("token_scaling", results, bars(scores))


if __name__ == "__main__":
    main()
