"""Parses the metrics pages of gateways and activators into counters by target. Pure.

The parser caches the meaning of each line's name and labels: a page of a thousand services of two arms has
46,000 lines, for which the parser of prometheus_client takes a second.
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
"""Metrics with the labels of a target, and the field of each."""
_TOKENS = {
    "slipway_prompt_tokens_total": "processed",
    "slipway_generated_tokens_total": "processed",
    "slipway_tokens_waiting": "waiting",
    "slipway_token_queue_requests": "queued",
    "slipway_token_queue_age_seconds": "age",
}
"""Metrics of language models with the labels of a target, and the field of each."""
_READ_AT = "slipway_gateway_reading_timestamp_seconds"
_ALONE = {
    _READ_AT: "read_at",
    "slipway_envoy_start_time_seconds": "started",
    "slipway_gateway_info": "gateway",
    "slipway_activator_info": "activator",
}
_BUCKET = "slipway_request_duration_seconds_bucket"
_BOUND = ',le="'
_LABEL = re.compile(r'(?<!\w)(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_REMEMBERED = 100_000
"""Most cached names with labels: five times those of a thousand services of two arms."""


class ScaleTargetName(NamedTuple):
    """The name of a scale target whose load gateways count: the Deployment of a revision."""

    namespace: str
    name: str


class Counts(NamedTuple):
    """Counters of one target at one gateway since its Envoy started, and the gauge at the reading's time."""

    received: float = 0.0
    answered: float = 0.0
    errors: float = 0.0
    """Answers with status 5xx."""
    seconds: float = 0.0
    """Total seconds from a request to the end of its answer."""
    timed: float = 0.0
    """The number of answers in `seconds`."""
    in_flight: float = 0.0
    """Requests in flight, those that the activator holds included."""


class Tokens(NamedTuple):
    """The tokens of one target at one gateway."""

    processed: float = 0.0
    """Read and generated tokens since its Envoy started."""
    waiting: float = 0.0
    """Tokens of prompts that are not read yet, and expected tokens that are not generated yet."""
    queued: float = 0.0
    """Requests without a first token."""
    age: float = 0.0
    """Mean seconds since their arrival."""


class Page(NamedTuple):
    """The content of one page."""

    gateway: str
    """Name of the gateway; empty for another component's page."""
    activator: str
    read_at: float
    """Unix seconds of the counters; 0 if the page has none."""
    started: float
    """Unix seconds of the start of Envoy."""
    counts: dict[ScaleTargetName, Counts]
    held: dict[ScaleTargetName, float]
    buckets: dict[ScaleTargetName, dict[float, float]]
    """Cumulative answers by the upper bound of their seconds, of the targets in `timed`."""
    tokens: dict[ScaleTargetName, Tokens]
    """Token counts of language models."""


class _Sample(NamedTuple):
    """The meaning of a line's name and labels."""

    target: ScaleTargetName
    place: int
    """The index in `Counts`, or from `_FIRST_TOKEN_PLACE` on in `Tokens`; -1 for held requests."""
    is_error: bool = False


_OTHER = _Sample(ScaleTargetName("", ""), -2)
_PLACES = {name: place for place, name in enumerate(Counts._fields)}
_WIDTH = len(Counts._fields)
_FIRST_TOKEN_PLACE = 100
_TOKEN_PLACES = {name: place for place, name in enumerate(Tokens._fields, _FIRST_TOKEN_PLACE)}
_TOKEN_WIDTH = len(Tokens._fields)


class Parser:
    """Parses pages, with a cache by everything of a line but its number."""

    def __init__(self) -> None:
        self._known: dict[str, _Sample] = {}
        self._targets: dict[ScaleTargetName, ScaleTargetName] = {}
        self._series: dict[str, ScaleTargetName] = {}
        """Cache by the part of a bucket's line before its bound."""
        self._last: tuple[str, AbstractSet[ScaleTargetName], Page] | None = None
        """The last text of a gateway's counts, the targets in `timed`, and their content."""

    def page(self, text: str, timed: AbstractSet[ScaleTargetName] = frozenset()) -> Page:
        """Parse a page; unknown metrics are ignored.

        A gateway's counts stand before their time. If they are those of the last page, so are the mappings:
        without requests, parsing those of a thousand services took a third of the autoscaler's time.

        Args:
            text: in Prometheus's text form.
            timed: targets whose histograms are parsed; histograms are three quarters of a page.

        Raises:
            ValueError: the value of a sample is not a number.
        """
        before, time, after = text.partition(f"\n{_READ_AT} ")
        rest = self._parsed(time.lstrip() + after, timed)
        if not time or rest.counts or rest.held or rest.buckets:
            return self._parsed(text, timed)
        if self._last is None or self._last[:2] != (before, timed):
            self._last = (before, timed, self._parsed(before, timed))
        counted = self._last[2]
        tokens = {**counted.tokens, **rest.tokens}
        return rest._replace(counts=counted.counts, held=counted.held, buckets=counted.buckets, tokens=tokens)

    def _parsed(self, text: str, timed: AbstractSet[ScaleTargetName]) -> Page:
        counts_by_target: dict[ScaleTargetName, list[float]] = {}
        held: dict[ScaleTargetName, float] = {}
        alone: dict[str, tuple[str, float]] = {}
        buckets: dict[ScaleTargetName, dict[float, float]] = {}
        tokens: dict[ScaleTargetName, list[float]] = {}
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
            if place >= _FIRST_TOKEN_PLACE:
                values = tokens.setdefault(target, [0.0] * _TOKEN_WIDTH)
                values[place - _FIRST_TOKEN_PLACE] += float(value)
            elif place >= 0:
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
            {target: Tokens(*numbers) for target, numbers in tokens.items()},
        )

    def _bucket(
        self,
        line: str,
        timed: AbstractSet[ScaleTargetName],
        buckets: dict[ScaleTargetName, dict[float, float]],
    ) -> None:
        series, _, rest = line.partition(_BOUND)
        target = self._series.get(series)
        if target is None:
            if len(self._series) >= _REMEMBERED:
                self._series.clear()
            labels = _labels(series.partition("{")[2])
            target = self._series[series] = ScaleTargetName(
                labels.get("namespace", ""), labels.get("revision", "")
            )
        if target in timed:
            bound, _, value = rest.partition('"} ')
            bounds = buckets.setdefault(target, {})
            bounds[float(bound)] = bounds.get(float(bound), 0.0) + float(value)

    def _learn(self, head: str) -> _Sample:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
            self._targets.clear()
        name, _, label_text = head.partition("{")
        field = _COUNTED.get(name) or _TOKENS.get(name)
        sample = _OTHER
        if field is not None:
            labels = _labels(label_text)
            target = ScaleTargetName(labels.get("namespace", ""), labels.get("revision", ""))
            target = self._targets.setdefault(target, target)
            code = labels.get("code_class", "")
            places = _TOKEN_PLACES if name in _TOKENS else _PLACES
            sample = _Sample(target, -1 if field == "held" else places[field], code == "5xx")
        self._known[head] = sample
        return sample


def _labels(text: str) -> dict[str, str]:
    return {
        name: _ESCAPED.sub(_plain, value) if "\\" in value else value for name, value in _LABEL.findall(text)
    }


def _plain(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
