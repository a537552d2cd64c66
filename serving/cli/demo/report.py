"""Results of the demo's requests: shares with their interval, latencies, accuracy. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scipy.stats import binom

from serving.quantile import nearest_rank

CONFIDENCE = 0.999_999
"""A correct split fails the demo once in a million runs. The demo is one of our tests; at 99.9 % it failed
once in 500 runs."""


class RequestResult(NamedTuple):
    """The result of one request.

    `at` is the start in monotonic seconds; `version` is the ModelVersion that answered, None after a failure;
    `correct` is whether the prediction is correct, or after a failure its reason.
    """

    at: float
    version: str | None
    milliseconds: float
    correct: bool | str


@dataclass(frozen=True)
class ArmResult:
    """Results of one arm. Shares are fractions of all answered requests, latencies are in milliseconds."""

    name: str
    version: str
    requests: int
    """That the arm answered."""
    expected: float
    """The share by the arm's weight."""
    share: float
    low: float
    high: float
    """`low` and `high` bound the share of a correct split, with `CONFIDENCE`."""
    p50: float
    p99: float
    accuracy: float
    """Fraction of the arm's predictions that are correct."""

    @property
    def as_expected(self) -> bool:
        """Whether a correct split explains the share."""
        return self.low <= self.share <= self.high


def arms(
    rows: Sequence[RequestResult], versions: Mapping[str, str], weights: Mapping[str, float]
) -> list[ArmResult]:
    """Return the results of each arm.

    Args:
        rows: the requests.
        versions: ModelVersion by arm, all different.
        weights: of the spec, by arm, relative to their sum.
    """
    answered = [row for row in rows if row.version is not None]
    total, total_weight = len(answered), sum(weights.values())
    results = []
    for name, version in versions.items():
        own = [row for row in answered if row.version == version]
        expected = weights[name] / total_weight
        low, high = binom.interval(CONFIDENCE, total, expected) if total else (0, 0)
        times = [row.milliseconds for row in own] or [float("nan")]
        results.append(
            ArmResult(
                name=name,
                version=version,
                requests=len(own),
                expected=expected,
                share=len(own) / (total or 1),
                low=low / (total or 1),
                high=high / (total or 1),
                p50=statistics.median(times),
                p99=nearest_rank(times, 0.99),
                accuracy=sum(row.correct is True for row in own) / (len(own) or 1),
            )
        )
    return results


def failures(rows: Sequence[RequestResult]) -> list[str]:
    """Return why requests failed."""
    return [str(row.correct) for row in rows if row.version is None]
