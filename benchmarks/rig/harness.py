"""Shared parts of the benchmarks: the machine, confidence intervals, and the last line of JSON.

A bar applies to the worse end of a 95 % bootstrap interval, so a lucky run does not meet it.
"""

import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from serving.quantile import nearest_rank

ROOT = Path(__file__).parents[2]
"""The repository."""
DATA = Path(os.environ.get("SLIPWAY_DATA", ROOT.parent / "shared" / "data"))
"""The measured data: tables of services, and traces of load."""
RESAMPLES = 2_000
SEED = 20_261_121
"""Resampling is reproducible: the same samples give the same interval."""


@dataclass(frozen=True)
class Interval:
    """A statistic of the samples and its 95 % percentile bootstrap interval."""

    value: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True)
class Bar:
    """`value` is the worse end of the interval; `bar` is its bound."""

    what: str
    value: float
    bar: float
    met: bool


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank."""
    return float(nearest_rank(values, percent / 100))


def interval(values: Sequence[float], statistic: Callable[[Sequence[float]], float] = median) -> Interval:
    """Bootstrap a statistic of independent samples."""
    draw = random.Random(SEED)
    resampled = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    low, high = resampled[int(RESAMPLES * 0.025)], resampled[int(RESAMPLES * 0.975) - 1]
    return Interval(round(statistic(values), 4), round(low, 4), round(high, 4), len(values))


def at_least(name: str, interval: Interval, bar: float) -> Bar:
    return Bar(name, interval.low, bar, interval.low >= bar)


def at_most(name: str, interval: Interval, bar: float) -> Bar:
    return Bar(name, interval.high, bar, interval.high <= bar)


def machine() -> dict[str, Any]:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memoryGiB": round(pages / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "loadAverage": [round(x, 2) for x in os.getloadavg()],
    }


def report(benchmark: str, results: dict[str, Any], bars: Sequence[Bar]) -> None:
    """Print the JSON line; call it last."""
    line = {
        "benchmark": benchmark,
        "machine": machine(),
        "results": results,
        "bars": [asdict(b) for b in bars],
    }
    print(json.dumps(line, default=_plain), flush=True)


def _plain(value: object) -> Any:
    if isinstance(value, Interval):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


class ProcessorTime(NamedTuple):
    """CPU seconds of a process."""

    user: float
    kernel: float


def processor_time(pid: int) -> ProcessorTime:
    """CPU seconds of a process, user and kernel: proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return ProcessorTime(*(int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in fields[11:13]))


def process_seconds(pid: int) -> float:
    """CPU seconds of a process, user and kernel together, to the nanosecond: clock_getcpuclockid(3).

    `processor_time` counts ticks of a hundredth of a second; a proxy uses some thirty of them in a turn.
    """
    clock_of_process = ~pid << 3 | 2  # MAKE_PROCESS_CPUCLOCK of <linux/posix-timers.h>, CPUCLOCK_SCHED
    return time.clock_gettime(clock_of_process)


def resident_mib(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return round(int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)
