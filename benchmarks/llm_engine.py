"""Our runtime of language models beside `transformers serve`: the same checkpoint, one core each, in turns.

Tokens per second and time to first token with 1, 8 and 64 streams. `transformers serve` is run as it comes,
one answer at a time, and with its continuous batching. Each engine has the machine to itself in its turn; the
load runs on the other core. A ratio is of one round.

With `--device cuda` all are on the GPU, in half precision and on any cores, and their models stay in its
memory:

    python benchmarks/llm_engine.py --device cuda --width 3072 --layers 12 --head 128 --rounds 3
"""

import argparse
import contextlib
import importlib.util
import sys
import tempfile
from pathlib import Path

from rig import interrupts
from rig.harness import Bar, at_least, at_most, interval, median, percentile, report
from rig.language import engines
from rig.language.chat_load import ChatRun, chats
from rig.language.engines import CONTINUOUS, OURS, SERVE

STREAMS = (1, 8, 64)
ANSWERS = {1: 4, 8: 16, 64: 64}
"""Of a run; `transformers serve` answers one after the other."""


async def main(*, quick: bool, rounds: int, device: str, width: int, layers: int, head: int | None) -> None:
    for module in ("transformers", "accelerate"):  # `transformers serve` needs the second
        if importlib.util.find_spec(module) is None:
            sys.exit(f"{module} is not installed: pip install 'slipway[llm]' accelerate")
    from rig.language import checkpoint  # noqa: PLC0415 it imports PyTorch

    rounds = 1 if quick else rounds
    streams = STREAMS[:2] if quick else STREAMS
    runs: dict[tuple[str, int], list[ChatRun]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-llm-")))
        (folder / "checkpoint").mkdir()
        millions = checkpoint.write(
            folder / "checkpoint", width=width, layers=layers, head=head, device=device
        )
        running = {
            kind: stack.enter_context(engines.engine(kind, folder / "checkpoint", folder, device))
            for kind in (OURS, SERVE, CONTINUOUS)
        }
        for server in running.values():
            await chats(server, 1, 1)  # warm
        for number in range(rounds):
            for count in streams:
                kinds = list(running) if number % 2 == 0 else list(reversed(running))
                for kind in kinds:
                    run = await chats(running[kind], count, ANSWERS[count])
                    runs.setdefault((kind, count), []).append(run)
                    print(
                        f"{kind}, {count} streams: {run.tokens_per_second:.0f} tokens/s, first token after"
                        f" {1000 * median(run.first):.0f} ms, {run.failed} failed",
                        file=sys.stderr,
                        flush=True,
                    )
    results = {
        "device": device if device == "cpu" else _gpu(),
        "millionsOfParameters": round(millions, 1),
        "startSeconds": {kind: engine.start_seconds for kind, engine in running.items()},
        "engines": {
            kind: {
                str(count): {
                    "tokensPerSecond": interval([run.tokens_per_second for run in runs[kind, count]]),
                    "firstTokenMsP50": round(
                        median([1000 * median(run.first) for run in runs[kind, count]]), 1
                    ),
                    "firstTokenMsP99": round(
                        percentile([1000 * first for run in runs[kind, count] for first in run.first], 99), 1
                    ),
                    "failed": sum(run.failed for run in runs[kind, count]),
                }
                for count in streams
            }
            for kind in running
        },
    }
    report("llm_engine", results, bars(runs, streams))


def _gpu() -> str:
    import torch  # noqa: PLC0415 as above

    return str(torch.cuda.get_device_name())


def bars(runs: dict[tuple[str, int], list[ChatRun]], streams: tuple[int, ...]) -> list[Bar]:
    """Compare with the better of the other engines' throughput, and with `transformers serve` as it comes."""
    compared = []
    for count in streams:
        ours = runs[OURS, count]
        for other in (SERVE, CONTINUOUS):
            pairs = list(zip(ours, runs[other, count], strict=True))
            rates = [mine.tokens_per_second / its.tokens_per_second for mine, its in pairs]
            firsts = [median(mine.first) / median(its.first) for mine, its in pairs]
            compared += [
                at_least(f"{count} streams: tokens per second over {other}", interval(rates), 1.0),
                at_most(f"{count} streams: time to first token over {other}", interval(firsts), 1.0),
            ]
    return compared


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one round, without 64 streams")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--head", type=int, help="width of a head of attention, by default 32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    interrupts.run(main(**vars(options)))
