"""What the demo's requests say: shares against their interval, latencies, accuracy. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scipy.stats import binom

CONFIDENCE = 0.999_999
"""A right split fails the demo once in a million runs: it is a test of ours too, and 99.9 % failed one in 500."""


class Row(NamedTuple):
    """One request: when (monotonic seconds), which ModelVersion answered, how long (ms), and whether rightly."""

    at: float
    version: str | None
    milliseconds: float
    right: bool | str


@dataclass(frozen=True)
class Arm:
    """What one arm did."""

    name: str
    version: str
    requests: int
    expected: float
    share: float
    low: float
    high: float
    """Bounds of the share that a right split stays within, with `CONFIDENCE`."""
    p50: float
    p99: float
    accuracy: float

    @property
    def as_expected(self) -> bool:
        return self.low <= self.share <= self.high


def arms(rows: Sequence[Row], versions: Mapping[str, str], weights: Mapping[str, float]) -> list[Arm]:
    """Return what each arm did.

    Args:
        rows: the requests.
        versions: ModelVersion by arm; they differ, so an answer's version names the arm.
        weights: asked for, by arm, in any unit.
    """
    answered = [row for row in rows if row.version is not None]
    total = len(answered)
    found = []
    for name, version in versions.items():
        mine = [row for row in answered if row.version == version]
        expected = weights[name] / sum(weights.values())
        low, high = binom.interval(CONFIDENCE, total, expected) if total else (0, 0)
        times = [row.milliseconds for row in mine] or [float("nan")]
        found.append(
            Arm(
                name, version, len(mine), expected, len(mine) / (total or 1),
                low / (total or 1), high / (total or 1), statistics.median(times), percentile(times, 0.99),
                sum(row.right is True for row in mine) / (len(mine) or 1),
            )
        )  # fmt: skip
    return found


def percentile(values: Sequence[float], quantile: float) -> float:
    """Return the nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[
        min(len(ordered) - 1, max(0, -(-int(quantile * 1_000_000) * len(ordered) // 1_000_000) - 1))
    ]


def failures(rows: Sequence[Row]) -> list[str]:
    """Return why requests failed."""
    return [str(row.right) for row in rows if row.version is None]
