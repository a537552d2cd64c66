"""The time to the first token of each turn of a chat, whose prompt has all earlier turns.

Our runtime with its prefix cache and without, and the continuous batching of `transformers serve`, which has
a prefix cache too: the same checkpoint, one core each, in turns. Each chat begins with a number of its own. A
ratio is of one chat's last turn.
"""

import argparse
import contextlib
import importlib.util
import sys
import tempfile
from pathlib import Path

from rig import interrupts
from rig.harness import Interval, at_most, interval, median, report
from rig.language import engines
from rig.language.chat_load import conversation
from rig.language.engines import CONTINUOUS, OURS, OURS_WITHOUT_PREFIXES, RunningEngine

TURNS = 6
"""All turns are nearly as long as the context of the checkpoint."""


async def main(*, quick: bool, chats: int) -> None:
    for module in ("transformers", "accelerate"):  # `transformers serve` needs the second
        if importlib.util.find_spec(module) is None:
            sys.exit(f"{module} is not installed: pip install 'slipway[llm]' accelerate")
    from rig.language import checkpoint  # noqa: PLC0415 it imports PyTorch

    firsts: dict[str, list[list[float]]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-turns-")))
        (folder / "checkpoint").mkdir()
        checkpoint.write(folder / "checkpoint", width=256, layers=6)
        running: dict[str, RunningEngine] = {}
        for kind in (OURS, OURS_WITHOUT_PREFIXES, CONTINUOUS):
            (folder / kind).mkdir()
            running[kind] = stack.enter_context(engines.engine(kind, folder / "checkpoint", folder / kind))
        for server in running.values():
            await conversation(server, 1)  # warm
        for number in range(2 if quick else chats):
            kinds = list(running) if number % 2 == 0 else list(reversed(running))
            for kind in kinds:
                first = await conversation(running[kind], TURNS)
                firsts.setdefault(kind, []).append(first)
                shown = ", ".join(f"{1000 * seconds:.0f}" for seconds in first)
                print(f"{kind}: first token of each turn after {shown} ms", file=sys.stderr, flush=True)
    results = {
        kind: [round(1000 * median([chat[turn] for chat in of_kind]), 1) for turn in range(TURNS)]
        for kind, of_kind in firsts.items()
    }

    def over(other: str) -> Interval:
        pairs = zip(firsts[OURS], firsts[other], strict=True)
        return interval([mine[-1] / its[-1] for mine, its in pairs])

    report(
        "chat_turns",
        {"firstTokenMsByTurn": results},
        [
            at_most(
                "last turn: time to first token over that without prefixes", over(OURS_WITHOUT_PREFIXES), 0.5
            ),
            at_most(f"last turn: time to first token over {CONTINUOUS}", over(CONTINUOUS), 1.0),
        ],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two chats")
    parser.add_argument("--chats", type=int, default=12)
    options = parser.parse_args()
    interrupts.run(main(**vars(options)))
