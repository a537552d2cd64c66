"""The gateway's metrics page: Envoy's counts by revision, in Prometheus's text format.

prometheus_client would take seven times as long for a thousand services of two arms. Only samples that have
changed since the last reading are formatted again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from serving.router.envoy import statistics
from serving.router.envoy.statistics import BOUNDS_MS, CLASSES, Statistics
from serving.router.metrics.labels import Labels, family

RECEIVED = "slipway_requests_received_total"
ANSWERED = "slipway_requests_total"
IN_FLIGHT = "slipway_requests_in_flight"
DURATION = "slipway_request_duration_seconds"
READ_AT = "slipway_gateway_reading_timestamp_seconds"
STARTED_AT = "slipway_envoy_start_time_seconds"
GATEWAY = "slipway_gateway_info"

_BOUNDS = (*(f"{bound / 1000:g}" for bound in BOUNDS_MS), "+Inf")


class RequestCounts(NamedTuple):
    """Requests to one cluster: all received ones, and those without a response yet."""

    total: int
    active: int


class _Templates:
    """Format strings for one revision's samples, with its labels."""

    def __init__(self, labels: Labels) -> None:
        text = labels.text.replace("%", "%%")
        self.labels = labels
        self.received = f"{RECEIVED}{{{text}}} %d\n"
        self.answered = {code: f'{ANSWERED}{{{text},code_class="{code}"}} %d\n' for code in CLASSES}
        self.in_flight = f"{IN_FLIGHT}{{{text}}} %d\n"
        self.buckets = "".join(f'{DURATION}_bucket{{{text},le="{bound}"}} %s\n' for bound in _BOUNDS)
        self.durations = f"{DURATION}_sum{{{text}}} %.3f\n{DURATION}_count{{{text}}} %s\n"


class _Samples(NamedTuple):
    """One cluster's formatted samples, and their source."""

    templates: _Templates
    statistics: Statistics
    counts: RequestCounts
    received: str
    answered: str
    in_flight: str
    buckets: str
    durations: str
    """Their sum and their number."""


@dataclass
class EnvoyCounts:
    """The counts of one Envoy since its start."""

    started: float
    """Start of this Envoy, in Unix seconds."""
    read_at: float = 0.0
    """Last reading, in Unix seconds."""
    _statistics: Mapping[str, Statistics] = field(default_factory=dict)
    _counts: dict[str, RequestCounts] = field(default_factory=dict)
    _samples: dict[str, _Samples] = field(default_factory=dict)
    _families: dict[bool, str] = field(default_factory=dict)
    """Text of the clusters' families, with and without buckets; empty after a change."""
    _labels: Mapping[str, Labels] = field(default_factory=dict)
    """Labels in those texts."""

    def update(self, clusters: Mapping[str, Statistics], now: float, *, durations: bool = True) -> None:
        """Take a reading.

        Args:
            clusters: every cluster that has statistics.
            now: Unix seconds.
            durations: whether the reading has durations; otherwise the last ones stay.
        """
        if not durations:
            for name, reading in clusters.items():
                reading.durations = before.durations if (before := self._before(name, reading)) else ""
        self._counts = {name: self._count(name, reading) for name, reading in clusters.items()}
        self._statistics = clusters
        self._families.clear()
        self.read_at = now

    @property
    def counts(self) -> Mapping[str, RequestCounts]:
        """By cluster."""
        return self._counts

    def _count(self, name: str, reading: Statistics) -> RequestCounts:
        """Return the counts, never below the last ones: one is missing between a retry and its attempt."""
        total = statistics.received(reading.counts)
        if self._before(name, reading):
            total = max(total, self._counts[name].total)
        return RequestCounts(total, statistics.in_flight(reading.counts))

    def _before(self, name: str, reading: Statistics) -> Statistics | None:
        """Return the last reading of a cluster, unless the cluster was removed and added again since."""
        before = self._statistics.get(name)
        restarted = before is not None and reading.counts.get("total", 0) < before.counts.get("total", 0)
        return None if restarted else before

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
            self._families[buckets] = self._clusters(buckets=buckets)
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

    def _clusters(self, *, buckets: bool) -> str:
        """Return the families of the clusters."""
        self._samples = {
            name: self._format(name, item) for name, item in self._labels.items() if name in self._statistics
        }
        samples = list(self._samples.values())
        families = (
            family(
                RECEIVED, "counter", "Requests that arrived, answered or not.", (s.received for s in samples)
            ),
            family(
                ANSWERED,
                "counter",
                "Requests that were answered, by class of the status code.",
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
                "Time from a request's last byte to its response's, in whole milliseconds.",
                (s.buckets + s.durations if buckets else s.durations for s in samples),
            ),
        )
        return "".join(families)

    def _format(self, name: str, labels: Labels) -> _Samples:
        reading, counts, last = self._statistics[name], self._counts[name], self._samples.get(name)
        same_labels = last is not None and last.templates.labels == labels
        templates = last.templates if last is not None and same_labels else _Templates(labels)
        if last is not None and same_labels and (last.statistics, last.counts) == (reading, counts):
            return last
        if last is not None and same_labels and last.statistics.durations == reading.durations:
            buckets, durations = last.buckets, last.durations
        else:
            parsed = statistics.parse_durations(reading.durations)
            buckets = templates.buckets % parsed.at_most
            durations = templates.durations % (parsed.seconds, parsed.at_most[-1])
        answered = (
            templates.answered[code] % count for code, count in statistics.answered(reading.counts).items()
        )
        return _Samples(
            templates,
            reading,
            counts,
            templates.received % counts.total,
            "".join(answered),
            templates.in_flight % counts.active,
            buckets,
            durations,
        )
