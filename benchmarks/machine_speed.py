"""Variation of the machine's own speed: a fixed piece of arithmetic, repeated alone on one core.

Two load tests of the same length that are limited by the core differ by at least `deviation` of spans of that
length. The variation is large where another user has the sibling hardware thread. `live_tuning.py` has the
differences between Trials.
"""

import argparse
import os
import statistics
import time

from rich.console import Console
from rich.progress import track
from rig.harness import percentile, report

PIECE = 10_000
"""Numbers summed in one piece: about a millisecond, so a span of a quarter second has hundreds."""
SPANS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0)
"""Seconds; windows of a Trial take 0.25 to 10."""
LEAST = 4
"""Fewest spans of a length for a meaningful deviation."""


def pieces(seconds: float) -> list[float]:
    """Return the seconds of each piece, in order."""
    durations = []
    for _ in track(range(int(seconds)), description="arithmetic", console=Console(stderr=True, width=110)):
        began = time.perf_counter()
        end = began + 1
        while began < end:
            total = 0
            for number in range(PIECE):
                total += number * number
            now = time.perf_counter()
            durations.append(now - began)
            began = now
    return durations


def speeds(took: list[float], span: float) -> list[float]:
    """Return pieces per second in each whole span of this many seconds."""
    results, count, spent = [], 0, 0.0
    for piece in took:
        count, spent = count + 1, spent + piece
        if spent >= span:
            results.append(count / spent)
            count, spent = 0, 0.0
    return results


def deviations(took: list[float]) -> dict[str, float]:
    """Return the coefficient of variation of the speed between spans, by their seconds."""
    by = {span: speeds(took, span) for span in SPANS}
    return {
        f"{span:g}": round(statistics.stdev(values) / statistics.mean(values), 3)
        for span, values in by.items()
        if len(values) >= LEAST
    }


def main() -> None:
    """Measure, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120, help="in all")
    parser.add_argument("--quick", action="store_const", dest="seconds", const=10)
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    took = pieces(options.seconds)
    slowdown = {f"p{percent}": round(percentile(took, percent) / min(took), 2) for percent in (10, 50, 90)}
    results = {"seconds": round(sum(took), 1), "slowerThanFastest": slowdown, "deviation": deviations(took)}
    report("machine_speed", results, [])


if __name__ == "__main__":
    main()
