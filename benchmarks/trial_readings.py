"""How far trials that should agree are apart, and how far they would be if each were read from all of its windows.

Of the 288 recorded trials (three rounds of `live_tuning.py`: `benchmarks/data/trial_windows.csv.gz`, two cores of an AMD EPYC, windows of 2 s, p99
within 100 ms) those with batches of 64 and the same cores differ in memory and threads only, which explain next to nothing there (`by`: the mean
deviation with each of their values, and in each round). Their logarithms' standard deviation is given for three readings of the same windows:

- recorded: the throughput of the window at the load that the trial ended at, as a Trial's result is today.
- law: the throughput where a curve through all windows meets the limit. Closed loops: N users get X = N / (a + b N) (Denning and Buzen, The
  Operational Analysis of Queueing Network Models, 1978, section 4), and a p99 proportional to N.
- most: the highest throughput of any window, which knows no limit: about what the machine itself varies by.

No trial is made, so that it takes a second. `correlation` is that of one trial's deviation with the next one's, minutes later: what of it the
machine keeps.
"""

import argparse
import csv
import gzip
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # before this file's own directory, in which tuner.py has the package's name

import numpy as np  # noqa: E402
from rig.harness import report  # noqa: E402
from scipy.optimize import nnls  # noqa: E402

WINDOWS = ROOT / "benchmarks/data/trial_windows.csv.gz"
BATCH, CORES = "64", ("500m", "750m", "1")
"""Specs near the best; with fewer cores some trials break the limit at any load."""
BY = ("memory", "threads", "round")
LIMIT = 0.1
"""Seconds, of the p99."""
LEAST_ANSWERS = 5
"""Of a window; fewer say nothing of a p99."""

Window = Mapping[str, str]


def recorded(windows: Sequence[Window]) -> float:
    """Return the log throughput that the trial gave as its result."""
    return math.log(next(float(one["throughput"]) for one in windows if one["result"] == "1"))


def most(windows: Sequence[Window]) -> float:
    """Return the highest log throughput of any window."""
    return math.log(max(float(one["throughput"]) for one in windows))


def law(windows: Sequence[Window]) -> float:
    """Return the log throughput at which the p99 is expected to be at the limit, from all windows."""
    told = [one for one in windows if one["p99_s"] and int(one["requests"]) >= LEAST_ANSWERS]
    users, rate, p99, answers = (
        np.array([float(one[name]) for one in told]) for name in ("level", "throughput", "p99_s", "requests")
    )
    certainty = np.sqrt(answers)
    per_user = np.average(np.log(p99 / users), weights=certainty)
    at_limit = math.exp(math.log(LIMIT) - per_user)
    seconds = users / rate
    scale = certainty / seconds
    (alone, each), _ = nnls(np.column_stack([scale, users * scale]), seconds * scale)
    return math.log(at_limit / (alone + each * at_limit))


READINGS = {"recorded": recorded, "law": law, "most": most}


def trials() -> dict[str, list[list[Window]]]:
    """Return the windows of each trial that counts, in the order of time, by its cores."""
    with gzip.open(WINDOWS, "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["batch"] == BATCH and row["cpu"] in CORES]
    by_trial: dict[tuple[str, ...], list[Window]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["start"]):
        by_trial[row["round"], row["row"], row["cpu"]].append(row)
    found: dict[str, list[list[Window]]] = {cores: [] for cores in CORES}
    for (_, _, cores), windows in by_trial.items():
        found[cores].append(windows)
    return found


def _figures(reading: Callable[[Sequence[Window]], float]) -> dict[str, Any]:
    """Return how far trials are apart by one reading of their windows."""
    left: list[tuple[Window, float]] = []
    by_cores = {}
    for cores, of in trials().items():
        values = np.array([reading(windows) for windows in of])
        by_cores[cores] = round(float(values.std(ddof=1)), 3)
        left += zip((windows[0] for windows in of), values - values.mean(), strict=True)
    in_turn = np.array([value for _, value in sorted(left, key=lambda one: one[0]["start"])])
    by: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in BY}
    for window, value in left:
        for name, values_of in by.items():
            values_of[window[name]].append(value)
    return {
        "deviation": round(math.sqrt(float(in_turn @ in_turn) / (len(in_turn) - len(CORES))), 3), "byCores": by_cores,
        "by": {name: {key: round(float(np.mean(some)), 3) for key, some in sorted(of.items())} for name, of in by.items()},
        "correlation": round(float(np.corrcoef(in_turn[:-1], in_turn[1:])[0, 1]), 2), "trials": len(in_turn),
    }  # fmt: skip


def main() -> None:
    """Read them, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the same: it takes a second")
    parser.parse_args()
    results = {name: _figures(reading) for name, reading in READINGS.items()}
    report("trial_readings", results, [])


if __name__ == "__main__":
    main()
