"""What a gateway's page of metrics says: Envoy's counts by revision, in Prometheus's text form. Pure.

Written by hand: prometheus_client takes seven times as long for a thousand services of two arms. What has not changed
since the reading before is not written again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from serving.router.envoy import statistics
from serving.router.envoy.statistics import BOUNDS_MS, Statistics
from serving.router.metrics.labels import Labels, family

RECEIVED = "slipway_requests_received_total"
ANSWERED = "slipway_requests_total"
IN_FLIGHT = "slipway_requests_in_flight"
DURATION = "slipway_request_duration_seconds"
READ_AT = "slipway_gateway_reading_timestamp_seconds"
STARTED_AT = "slipway_envoy_start_time_seconds"
GATEWAY = "slipway_gateway_info"

_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
_BOUNDS = (*(f"{bound / 1000:g}" for bound in BOUNDS_MS), "+Inf")


class Counts(NamedTuple):
    """Requests to some clusters: all that ever came, and those that have no answer yet."""

    total: int
    active: int


class _Form:
    """How one revision's samples are written: with its labels in them once and for all."""

    def __init__(self, labels: Labels) -> None:
        text = labels.text.replace("%", "%%")
        self.labels = labels
        self.received = f"{RECEIVED}{{{text}}} %d\n"
        self.answered = {code: f'{ANSWERED}{{{text},code_class="{code}"}} %d\n' for code in _CLASSES}
        self.in_flight = f"{IN_FLIGHT}{{{text}}} %d\n"
        buckets = "".join(f'{DURATION}_bucket{{{text},le="{bound}"}} %s\n' for bound in _BOUNDS)
        self.durations = f"{buckets}{DURATION}_sum{{{text}}} %.3f\n{DURATION}_count{{{text}}} %s\n"


class _Written(NamedTuple):
    """One cluster's samples, and what they were written of."""

    form: _Form
    statistics: Statistics
    counts: Counts
    received: str
    answered: str
    in_flight: str
    durations: str


@dataclass
class Tally:
    """What one Envoy has counted since it started; another begins at nothing."""

    started: float
    """Unix seconds of when that Envoy was."""
    read_at: float = 0.0
    """Unix seconds of when it was last asked."""
    _statistics: Mapping[str, Statistics] = field(default_factory=dict)
    _received: dict[str, Counts] = field(default_factory=dict)
    _written: dict[str, _Written] = field(default_factory=dict)

    def put(self, found: Mapping[str, Statistics], now: float, *, durations: bool = True) -> None:
        """Take a reading: every cluster that has statistics; `durations` says whether theirs are in it."""
        if not durations:
            for name, said in found.items():
                said.durations = before.durations if (before := self._same(name, said)) else ""
        self._received = {name: self._counts(name, said) for name, said in found.items()}
        self._statistics = found
        self.read_at = now

    @property
    def counts(self) -> Mapping[str, Counts]:
        """By cluster."""
        return self._received

    def _counts(self, name: str, said: Statistics) -> Counts:
        """Between the decision to try again and the attempt, one is missing; a count must not go back for that."""
        now = statistics.received(said.counts)
        if self._same(name, said):
            now = max(now, self._received[name].total)
        return Counts(now, statistics.in_flight(said.counts))

    def _same(self, name: str, said: Statistics) -> Statistics | None:
        """What a cluster had before, unless it was made again since."""
        before = self._statistics.get(name)
        went_back = before is not None and said.counts.get("total", 0) < before.counts.get("total", 0)
        return None if went_back else before

    def page(self, gateway: str, labels: Mapping[str, Labels]) -> str:
        """Return the page.

        Args:
            gateway: whose it is.
            labels: of the clusters that it has, by name; others are not on it.
        """
        written = {name: self._write(name, who) for name, who in labels.items() if name in self._statistics}
        self._written = written
        found = list(written.values())
        return "".join((
            family(RECEIVED, "counter", "Requests that came, answered or not.", (w.received for w in found)),
            family(ANSWERED, "counter", "Requests that were answered, by class of code.", (w.answered for w in found)),
            family(IN_FLIGHT, "gauge", "Requests without an answer, those that are held at zero among them.",
                   (w.in_flight for w in found)),
            family(DURATION, "histogram", "From a request's last byte to its answer's, in whole milliseconds.",
                   (w.durations for w in found)),
            family(READ_AT, "gauge", "When the counts on this page were read from Envoy.",
                   [f"{READ_AT} {self.read_at:.3f}\n"] if self.read_at else []),
            family(STARTED_AT, "gauge", "When the Envoy was started that has counted them from nothing.",
                   [f"{STARTED_AT} {self.started:.2f}\n"]),
            family(GATEWAY, "gauge", "Whose page this is.", [f'{GATEWAY}{{gateway="{gateway}"}} 1\n']),
        ))  # fmt: skip

    def _write(self, name: str, labels: Labels) -> _Written:
        said, counts, before = self._statistics[name], self._received[name], self._written.get(name)
        form = before.form if before is not None and before.form.labels == labels else _Form(labels)
        if before is not None and (before.form, before.statistics, before.counts) == (form, said, counts):
            return before
        if before is not None and before.form is form and before.statistics.durations == said.durations:
            durations = before.durations
        else:
            taken = statistics.durations(said.durations)
            durations = form.durations % (*taken.at_most, taken.seconds, taken.at_most[-1])
        return _Written(
            form, said, counts,
            form.received % counts.total,
            "".join(text % said.counts[code] for code, text in form.answered.items() if code in said.counts),
            form.in_flight % counts.active,
            durations,
        )  # fmt: skip
