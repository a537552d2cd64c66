"""Pages of gateways and activators: Prometheus's text → counts by target. Pure.

By hand, and what a line is about is remembered: a page of a thousand services of two arms has 46,000 lines, for which
prometheus_client takes a second.
"""

import re
from collections.abc import Set as AbstractSet
from typing import NamedTuple

_COUNTED = {
    "slipway_requests_received_total": "received",
    "slipway_requests_total": "answered",
    "slipway_requests_in_flight": "in_flight",
    "slipway_request_duration_seconds_sum": "seconds",
    "slipway_request_duration_seconds_count": "timed",
    "slipway_requests_held": "held",
}
"""By labels of a target."""
_ALONE = {
    "slipway_gateway_reading_timestamp_seconds": "read_at",
    "slipway_envoy_start_time_seconds": "started",
    "slipway_gateway_info": "gateway",
    "slipway_activator_info": "activator",
}
_BUCKET = "slipway_request_duration_seconds_bucket"
_BOUND = ',le="'
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_REMEMBERED = 100_000
"""Beginnings of lines that are remembered: five times what a thousand services of two arms have."""


class Target(NamedTuple):
    """Whose load it is: the workload that a revision of a predictor is."""

    namespace: str
    name: str


class Counts(NamedTuple):
    """What one gateway has counted of one target since its Envoy started; the gauge is of the reading's moment."""

    received: float = 0.0
    answered: float = 0.0
    errors: float = 0.0
    """Of the answers, those with 5xx."""
    seconds: float = 0.0
    """From a request to the end of its answer, all together."""
    timed: float = 0.0
    """Answers that `seconds` is of."""
    in_flight: float = 0.0
    """Those that the activator holds among them."""


class Page(NamedTuple):
    """One page, as it says."""

    gateway: str
    """Empty: it is not a gateway's."""
    activator: str
    read_at: float
    """Unix seconds of when the counts were; 0: not said."""
    started: float
    """Unix seconds of when what counts was started."""
    counts: dict[Target, Counts]
    held: dict[Target, float]
    buckets: dict[Target, dict[float, float]]
    """Answers by upper bound of their seconds, of the targets that were asked for."""


class _Sample(NamedTuple):
    """What a line is about."""

    target: Target
    place: int
    """In `Counts`; -1: it is held."""
    is_error: bool = False


_OTHER = _Sample(Target("", ""), -2)
_PLACES = {name: place for place, name in enumerate(Counts._fields)}
_WIDTH = len(Counts._fields)


class Parser:
    """Reads pages; it remembers what a line is about by all of it but its number."""

    def __init__(self) -> None:
        self._known: dict[str, _Sample] = {}
        self._targets: dict[Target, Target] = {}
        self._series: dict[str, Target] = {}
        """By all of a bucket's line before its bound."""

    def page(self, text: str, timed: AbstractSet[Target] = frozenset()) -> Page:
        """Return what a page says; metrics that are not known are passed over.

        Args:
            text: in Prometheus's text form.
            timed: targets whose histograms of durations are read: they are three quarters of a page, and few ask.

        Raises:
            ValueError: a sample has no number.
        """
        counts_by_target: dict[Target, list[float]] = {}
        held: dict[Target, float] = {}
        alone: dict[str, tuple[str, float]] = {}
        buckets: dict[Target, dict[float, float]] = {}
        known = self._known
        for line in text.split("\n"):
            if line.startswith((_BUCKET, "#")):
                if timed and line.startswith(_BUCKET):
                    self._bucket(line, timed, buckets)
                continue
            head, _, value = line.rpartition(" ")
            sample = known.get(head)
            if sample is None:
                sample = self._learn(head)
            target, place, is_error = sample
            if place >= 0:
                counts = counts_by_target.get(target)
                if counts is None:
                    counts = counts_by_target[target] = [0.0] * _WIDTH
                counts[place] += float(value)
                if is_error:
                    counts[_PLACES["errors"]] += float(value)
            elif place == -1:
                held[target] = held.get(target, 0.0) + float(value)
            elif (field := _ALONE.get(head.partition("{")[0])) is not None:
                alone[field] = (_labels(head).get(field, ""), float(value))
        nothing = ("", 0.0)
        return Page(
            alone.get("gateway", nothing)[0],
            alone.get("activator", nothing)[0],
            alone.get("read_at", nothing)[1],
            alone.get("started", nothing)[1],
            {target: Counts(*values) for target, values in counts_by_target.items()},
            held,
            buckets,
        )

    def _bucket(
        self, line: str, timed: AbstractSet[Target], buckets: dict[Target, dict[float, float]]
    ) -> None:
        series, _, rest = line.partition(_BOUND)
        target = self._series.get(series)
        if target is None:
            if len(self._series) >= _REMEMBERED:
                self._series.clear()
            labels = _labels(series.partition("{")[2])
            target = self._series[series] = Target(labels.get("namespace", ""), labels.get("revision", ""))
        if target in timed:
            bound, _, value = rest.partition('"} ')
            bounds = buckets.setdefault(target, {})
            bounds[float(bound)] = bounds.get(float(bound), 0.0) + float(value)

    def _learn(self, head: str) -> _Sample:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
            self._targets.clear()
        name, _, label_text = head.partition("{")
        field = _COUNTED.get(name)
        sample = _OTHER
        if field is not None:
            labels = _labels(label_text)
            target = Target(labels.get("namespace", ""), labels.get("revision", ""))
            target = self._targets.setdefault(target, target)
            code = labels.get("code_class", "")
            sample = _Sample(target, -1 if field == "held" else _PLACES[field], code == "5xx")
        self._known[head] = sample
        return sample


def _labels(text: str) -> dict[str, str]:
    return {
        name: _ESCAPED.sub(_plain, value) if "\\" in value else value for name, value in _LABEL.findall(text)
    }


def _plain(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
