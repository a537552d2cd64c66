"""Recorded live grids: the windows of three trials of each spec of manifests/samples/tuning.yaml."""

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from serving.resources.tuning.experiment import Constraint, Setting
from serving.resources.tuning.load import ExperimentLoad
from serving.resources.tuning.trial import Estimate, LatencyAt, TrialStatus
from serving.resources.tuning.trial import Window as Measured

DATA = Path(__file__).parents[2] / "data"
BEFORE = DATA / "trial_windows.csv.gz"
"""Of trials whose result was one of their windows."""
GRIDS = {number: DATA / f"live_grid_{number}.csv.gz" for number in (1, 2)}
"""Of trials as they are now: two machines of one kind, days apart."""
LOAD, LIMIT = ExperimentLoad(window_seconds=2), Constraint(metric="latency", percentile=99, at_most="100ms")
"""As the trials had them."""
_COLUMNS = (
    "round",
    "row",
    "cpu",
    "memory",
    "batch",
    "threads",
    "start",
    "level",
    "seconds",
    "requests",
    "throughput",
    "p99_s",
    "p99_low_s",
    "p99_high_s",
)
_AXES = {"cpu": "cpu", "memory": "memory", "batchSize": "batch", "OMP_NUM_THREADS": "threads"}

Window = Mapping[str, str]


def trials(path: Path) -> dict[tuple[int, int], list[Window]]:
    """Return the windows of each trial in the order of time, by round and row of the space."""
    with gzip.open(path, "rt", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["start"])
    windows: dict[tuple[int, int], list[Window]] = defaultdict(list)
    for row in rows:
        windows[int(row["round"]), int(row["row"])].append(row)
    return dict(windows)


def measured(row: Window) -> Measured:
    """Return a recorded window as a Trial has it."""
    rate = float(row["throughput"])
    p99 = {"value": row["p99_s"], "low": row["p99_low_s"], "high": row["p99_high_s"]}
    return Measured(
        level=float(row["level"]),
        seconds=float(row["seconds"]),
        requests=int(row["requests"]),
        throughput=Estimate(value=rate, low=rate, high=rate),
        error_rate=Estimate(value=0, low=0, high=0),
        latencies=[
            LatencyAt(metric="latency", percentile=99, **{key: float(value) for key, value in p99.items()})
        ]
        if row["p99_s"]
        else [],
    )


def record(path: Path, results: Iterable[tuple[int, int, Iterable[Setting], TrialStatus]]) -> None:
    """Write the trials of a grid: of each its round, row, settings and status.

    Raises:
        ValueError: requests of a trial failed, which is not kept.
    """
    with gzip.open(path, "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for number, row, settings, status in results:
            spec = {_AXES[item.name]: item.value for item in settings}
            for item in status.windows:
                if item.errors:
                    raise ValueError(
                        f"round {number}, row {row}: {item.errors} requests failed with {item.level:g} users"
                    )
                p99 = next((at for at in item.latencies if at.percentile == LIMIT.percentile), None)
                seen = [f"{p99.value:.6g}", f"{p99.low:.6g}", f"{p99.high:.6g}"] if p99 else ["", "", ""]
                writer.writerow(
                    [
                        number,
                        row,
                        *(spec[name] for name in _AXES.values()),
                        item.start_time,
                        f"{item.level:g}",
                        f"{item.seconds:.3g}",
                        item.requests,
                        f"{item.throughput.value:.6g}",
                        *seen,
                    ]
                )
