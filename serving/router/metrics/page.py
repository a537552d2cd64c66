"""The gateway's metrics page: Envoy's counts by revision, in Prometheus's text format.

prometheus_client would take seven times as long for a thousand services of two arms. Only samples that have
changed since the last reading are formatted again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from serving.resources.formats.metrics_text import family
from serving.resources.metric_names import (
    ANSWERED,
    DURATION,
    GATEWAY,
    IN_FLIGHT,
    READ_AT,
    RECEIVED,
    STARTED_AT,
)
from serving.router.envoy.counts import statistics
from serving.router.envoy.counts.count_table import BOUNDS_MS, CLASSES, Answers
from serving.router.metrics.labels import Labels

_NO_ANSWERS = Answers()
_BOUNDS = (*(f"{bound / 1000:g}" for bound in BOUNDS_MS), "+Inf")
"""Upper bounds of the buckets of durations, in seconds (`le`)."""


class RequestCounts(NamedTuple):
    """Requests to one cluster: all received ones, and those whose response has not ended."""

    received: int
    in_flight: int


class _Templates:
    """Format strings for one revision's samples, which have its labels and lack the numbers."""

    def __init__(self, labels: Labels) -> None:
        text = labels.text.replace("%", "%%")
        self.labels = labels
        self.received = f"{RECEIVED}{{{text}}} %d\n"
        self.answered = {code: f'{ANSWERED}{{{text},code_class="{code}"}} %d\n' for code in CLASSES}
        self.in_flight = f"{IN_FLIGHT}{{{text}}} %d\n"
        self.buckets = "".join(f'{DURATION}_bucket{{{text},le="{bound}"}} %d\n' for bound in _BOUNDS)
        self.durations = f"{DURATION}_sum{{{text}}} %.6f\n{DURATION}_count{{{text}}} %d\n"


class _Samples(NamedTuple):
    """One cluster's formatted samples, and their source."""

    templates: _Templates
    counts: RequestCounts
    answers: Answers
    received: str
    answered: str
    in_flight: str
    buckets: str
    durations: str
    """The sum and the number of the durations."""


@dataclass
class EnvoyCounts:
    """The counts of one Envoy since its start."""

    started: float
    """Start of this Envoy, in Unix seconds."""
    earlier_answers: dict[str, Answers] = field(default_factory=dict)
    """The answers of a cluster before it was removed, by cluster. The page subtracts them from those of a
    cluster that is added again, as Envoy's own counts begin at zero then."""
    read_at: float = 0.0
    """Last reading, in Unix seconds."""
    _clusters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Envoy's own counts by cluster and by name, of `statistics.parse`, since the cluster was added."""
    _counts: dict[str, RequestCounts] = field(default_factory=dict)
    """The counts on the page, by cluster."""
    _answers: Mapping[str, Answers] = field(default_factory=dict)
    """The module's counts of answers by cluster, since Envoy's start."""
    _samples: dict[str, _Samples] = field(default_factory=dict)
    _families: dict[bool, str] = field(default_factory=dict)
    """Text of the clusters' families, with buckets (True) and without (False); empty after a change."""
    _labels: Mapping[str, Labels] = field(default_factory=dict)
    """Labels in `_families`, by cluster."""

    def update(
        self, clusters: Mapping[str, Mapping[str, int]], answers: Mapping[str, Answers], now: float
    ) -> None:
        """Take a reading.

        Args:
            clusters: the counts of `statistics.parse`, of every cluster that has any.
            answers: by cluster, since Envoy's start.
            now: Unix seconds.
        """
        for name, answer in answers.items():
            if name not in clusters:  # removed: Envoy does this after its last request, so `answer` is final
                self.earlier_answers[name] = answer
            elif self._was_added_again(name, clusters[name]):
                self.earlier_answers[name] = self._answers.get(name, _NO_ANSWERS)
        self._counts = {name: self._count(name, counts) for name, counts in clusters.items()}
        self._clusters = clusters
        self._answers = answers
        self._families.clear()
        self.read_at = now

    @property
    def counts(self) -> Mapping[str, RequestCounts]:
        """The counts on the page, by cluster."""
        return self._counts

    @property
    def unreadable_answers(self) -> dict[str, Answers]:
        """The earlier answers of clusters that are back, which no other gateway can read from Envoy."""
        return {name: self.earlier_answers[name] for name in self._clusters if name in self.earlier_answers}

    def _count(self, name: str, counts: Mapping[str, int]) -> RequestCounts:
        """Return the counts of a cluster on the page.

        The received requests never decrease: `statistics.received` is one too low in the moment between
        Envoy's count of a retry and its count of the retry's attempt.
        """
        received = statistics.received(counts)
        if name in self._clusters and not self._was_added_again(name, counts):
            received = max(received, self._counts[name].received)
        return RequestCounts(received, statistics.in_flight(counts))

    def _was_added_again(self, name: str, counts: Mapping[str, int]) -> bool:
        """Return whether the cluster was removed and added again since the last reading.

        Envoy's counter `total`, of attempts with a connection, only grows while the cluster exists.
        """
        return counts.get("total", 0) < self._clusters.get(name, {}).get("total", 0)

    def page(self, gateway: str, labels: Mapping[str, Labels], *, buckets: bool = True) -> str:
        """Return the page.

        Args:
            gateway: its name.
            labels: of the clusters on the page, by name; another mapping if one of them has changed.
            buckets: with the buckets of durations; without them, durations are a summary.
        """
        if labels is not self._labels:
            self._labels = labels
            self._families.clear()
        if buckets not in self._families:
            self._families[buckets] = self._cluster_families(buckets=buckets)
        return self._families[buckets] + "".join(
            (
                family(
                    READ_AT,
                    "gauge",
                    "Time of the reading from Envoy.",
                    [f"{READ_AT} {self.read_at:.3f}\n"] if self.read_at else [],
                ),
                family(
                    STARTED_AT,
                    "gauge",
                    "Start of the Envoy that counts them.",
                    [f"{STARTED_AT} {self.started:.2f}\n"],
                ),
                family(
                    GATEWAY, "gauge", "The gateway of this page.", [f'{GATEWAY}{{gateway="{gateway}"}} 1\n']
                ),
            )
        )

    def _cluster_families(self, *, buckets: bool) -> str:
        """Return the families with a sample for each cluster."""
        self._samples = {
            name: self._format(name, item) for name, item in self._labels.items() if name in self._counts
        }
        samples = list(self._samples.values())
        families = (
            family(
                RECEIVED, "counter", "Requests that arrived, answered or not.", (s.received for s in samples)
            ),
            family(
                ANSWERED,
                "counter",
                "Requests whose response has ended, by class of the status code.",
                (s.answered for s in samples),
            ),
            family(
                IN_FLIGHT,
                "gauge",
                "Requests without a response, including those held at zero.",
                (s.in_flight for s in samples),
            ),
            family(
                DURATION,
                "histogram" if buckets else "summary",
                "Time from a request's last byte to its response's.",
                (s.buckets + s.durations if buckets else s.durations for s in samples),
            ),
        )
        return "".join(families)

    def _format(self, name: str, labels: Labels) -> _Samples:
        """Return the samples of a cluster; those that have not changed are taken from the last ones."""
        counts, last = self._counts[name], self._samples.get(name)
        answers = self._answers.get(name, _NO_ANSWERS)
        if name in self.earlier_answers:
            answers = answers.since(self.earlier_answers[name])
        if last is not None and last.templates.labels != labels:
            last = None  # none of them can be used again
        if last is not None and (last.counts, last.answers) == (counts, answers):
            return last
        templates = last.templates if last is not None else _Templates(labels)
        if last is not None and last.answers == answers:
            answered, buckets, durations = last.answered, last.buckets, last.durations
        else:
            at_most = tuple(accumulate(answers.durations))  # Prometheus's buckets are cumulative
            answered = "".join(
                templates.answered[code] % count
                for code, count in zip(CLASSES, answers.classes, strict=True)
                if count
            )
            buckets = templates.buckets % at_most
            durations = templates.durations % (answers.microseconds / 1e6, at_most[-1])
        return _Samples(
            templates,
            counts,
            answers,
            templates.received % counts.received,
            answered,
            templates.in_flight % counts.in_flight,
            buckets,
            durations,
        )
