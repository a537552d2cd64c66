"""Parses the metrics pages of gateways and activators into counters by target. Pure.

The parser caches the meaning of each line's name and labels: a page of a thousand services of two arms has
46,000 lines, for which the parser of prometheus_client takes a second.
"""

import re
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from serving.resources import metric_names

_COUNTED = {
    metric_names.RECEIVED: "received",
    metric_names.ANSWERED: "answered",
    metric_names.IN_FLIGHT: "in_flight",
    f"{metric_names.DURATION}_sum": "seconds",
    f"{metric_names.DURATION}_count": "timed",
    metric_names.HELD: "held",
}
"""The field of `Counts` of each metric with the labels of a target; `held` is the one of `SignalsPage`."""
_TOKENS = {
    metric_names.PROMPT_TOKENS: "processed",
    metric_names.GENERATED_TOKENS: "processed",
    metric_names.TOKENS_WAITING: "waiting",
    metric_names.QUEUE_REQUESTS: "queued",
    metric_names.QUEUE_AGE: "age",
}
"""The field of `TargetTokens` of each metric of language models with the labels of a target."""
_PAGE_METRICS = {
    metric_names.READ_AT: "read_at",
    metric_names.STARTED_AT: "started",
    metric_names.GATEWAY: "gateway",
    metric_names.ACTIVATOR: "activator",
}
"""The field of `SignalsPage` of each metric without the labels of a target. The value of an info metric is
its label with the name of the field."""
_BUCKET = f"{metric_names.DURATION}_bucket"
_BOUND = ',le="'
_LABEL = re.compile(r'(?<!\w)(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_MOST_CACHED = 100_000
"""Most entries of a cache by name and labels: five times the entries of a thousand services of two arms."""


class ScaleTargetName(NamedTuple):
    """The name of a scale target whose load gateways count: the Deployment of a revision."""

    namespace: str
    name: str


class Counts(NamedTuple):
    """Counters of one target at one gateway since its Envoy started, and the gauge `in_flight`."""

    received: float = 0.0
    answered: float = 0.0
    errors: float = 0.0
    """Answers with status 5xx."""
    seconds: float = 0.0
    """Total seconds from a request to the end of its answer."""
    timed: float = 0.0
    """The number of answers in `seconds`."""
    in_flight: float = 0.0
    """Requests in flight at the time of the reading, held requests included."""


class TargetTokens(NamedTuple):
    """The tokens of one target at one gateway."""

    processed: float = 0.0
    """Read and generated tokens since its Envoy started."""
    waiting: float = 0.0
    """Tokens of prompts that are not read yet, and expected tokens that are not generated yet."""
    queued: float = 0.0
    """Requests of streams that wait for their first token."""
    age: float = 0.0
    """Mean seconds since the arrival of the queued requests."""


class SignalsPage(NamedTuple):
    """The content of one page."""

    gateway: str
    """Name of the gateway; empty for another component's page."""
    activator: str
    """Name of the activator; empty for another component's page."""
    read_at: float
    """Unix seconds of the reading of the counters from Envoy; 0 on a page without it."""
    started: float
    """Unix seconds of the start of Envoy; 0 on a page without it."""
    counts: dict[ScaleTargetName, Counts]
    held: dict[ScaleTargetName, float]
    """Held requests."""
    buckets: dict[ScaleTargetName, dict[float, float]]
    """Cumulative answers by the upper bound of their duration in seconds, of the `timed_targets`."""
    tokens: dict[ScaleTargetName, TargetTokens]
    """Token counts of language models."""


class _Sample(NamedTuple):
    """The meaning of a line's name and labels."""

    target: ScaleTargetName
    place: int
    """The index of the field in `Counts`, the index in `TargetTokens` plus `_FIRST_TOKEN_PLACE`,
    `_HELD_PLACE` or `_NO_PLACE`."""
    is_error: bool = False


_HELD_PLACE = -1
"""The sample counts held requests."""
_NO_PLACE = -2
"""The sample has no target: its metric is one of `_PAGE_METRICS` or unknown."""
_NOT_OF_A_TARGET = _Sample(ScaleTargetName("", ""), _NO_PLACE)
_PLACES = {name: place for place, name in enumerate(Counts._fields)}
_WIDTH = len(Counts._fields)
_FIRST_TOKEN_PLACE = 100
"""Any number above the indices of `Counts`, so that one number distinguishes all places."""
_TOKEN_PLACES = {name: place for place, name in enumerate(TargetTokens._fields, _FIRST_TOKEN_PLACE)}
_TOKEN_WIDTH = len(TargetTokens._fields)


class Parser:
    """Parses the pages of one URL; caches the meaning of each head: a line without its value."""

    def __init__(self) -> None:
        self._sample_of_head: dict[str, _Sample] = {}
        self._interned_targets: dict[ScaleTargetName, ScaleTargetName] = {}
        """One object for each target, which all its heads share."""
        self._target_of_series: dict[str, ScaleTargetName] = {}
        """Cache by the part of a bucket's line before the label `le`."""
        self._last: tuple[str, AbstractSet[ScaleTargetName], SignalsPage] | None = None
        """Of the last page of a gateway: the text before its timestamp, the `timed_targets`, and the parsed
        text."""

    def page(self, text: str, timed_targets: AbstractSet[ScaleTargetName] = frozenset()) -> SignalsPage:
        """Parse a page; unknown metrics are ignored.

        A gateway writes all counts of requests before the timestamp of the reading. While no request arrives,
        the text before the timestamp does not change, and the mappings of the last page are returned again:
        parsing the text of a thousand services at each tick took a third of the autoscaler's time.

        Args:
            text: in Prometheus's text form.
            timed_targets: targets whose duration histograms are parsed, three quarters of a page.

        Raises:
            ValueError: the value of a sample is not a number.
        """
        before, timestamp_name, after = text.partition(f"\n{metric_names.READ_AT} ")
        rest = self._parsed(timestamp_name.lstrip() + after, timed_targets)
        if not timestamp_name or rest.counts or rest.held or rest.buckets:
            # The page is an activator's, or has counts after the timestamp.
            return self._parsed(text, timed_targets)
        if self._last is None or self._last[:2] != (before, timed_targets):
            self._last = (before, timed_targets, self._parsed(before, timed_targets))
        counted = self._last[2]
        tokens = {**counted.tokens, **rest.tokens}
        return rest._replace(counts=counted.counts, held=counted.held, buckets=counted.buckets, tokens=tokens)

    def _parsed(self, text: str, timed_targets: AbstractSet[ScaleTargetName]) -> SignalsPage:
        counts_by_target: dict[ScaleTargetName, list[float]] = {}
        held: dict[ScaleTargetName, float] = {}
        page_values: dict[str, float] = {}
        labels_of_page: dict[str, str] = {}
        buckets: dict[ScaleTargetName, dict[float, float]] = {}
        tokens: dict[ScaleTargetName, list[float]] = {}
        sample_of_head = self._sample_of_head
        for line in text.split("\n"):
            if line.startswith((_BUCKET, "#")):
                if timed_targets and line.startswith(_BUCKET):
                    self._bucket(line, timed_targets, buckets)
                continue
            head, _, value = line.rpartition(" ")
            sample = sample_of_head.get(head)
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
            elif place == _HELD_PLACE:
                held[target] = held.get(target, 0.0) + float(value)
            elif (field := _PAGE_METRICS.get(head.partition("{")[0])) is not None:
                page_values[field] = float(value)
                labels_of_page[field] = _labels(head).get(field, "")
        return SignalsPage(
            gateway=labels_of_page.get("gateway", ""),
            activator=labels_of_page.get("activator", ""),
            read_at=page_values.get("read_at", 0.0),
            started=page_values.get("started", 0.0),
            counts={target: Counts(*values) for target, values in counts_by_target.items()},
            held=held,
            buckets=buckets,
            tokens={target: TargetTokens(*values) for target, values in tokens.items()},
        )

    def _bucket(
        self,
        line: str,
        timed_targets: AbstractSet[ScaleTargetName],
        buckets: dict[ScaleTargetName, dict[float, float]],
    ) -> None:
        """Add the line of a histogram's bucket to `buckets`."""
        series, _, rest = line.partition(_BOUND)
        target = self._target_of_series.get(series)
        if target is None:
            if len(self._target_of_series) >= _MOST_CACHED:
                self._target_of_series.clear()
            labels = _labels(series.partition("{")[2])
            target = self._target_of_series[series] = ScaleTargetName(
                labels.get("namespace", ""), labels.get("revision", "")
            )
        if target in timed_targets:
            bound, _, value = rest.partition('"} ')
            bounds = buckets.setdefault(target, {})
            bounds[float(bound)] = bounds.get(float(bound), 0.0) + float(value)

    def _learn(self, head: str) -> _Sample:
        """Parse a head (name and labels of a line), and cache its meaning."""
        if len(self._sample_of_head) >= _MOST_CACHED:
            self._sample_of_head.clear()
            self._interned_targets.clear()
        name, _, label_text = head.partition("{")
        field = _COUNTED.get(name) or _TOKENS.get(name)
        sample = _NOT_OF_A_TARGET
        if field is not None:
            labels = _labels(label_text)
            target = ScaleTargetName(labels.get("namespace", ""), labels.get("revision", ""))
            target = self._interned_targets.setdefault(target, target)
            code = labels.get("code_class", "")
            places = _TOKEN_PLACES if name in _TOKENS else _PLACES
            place = _HELD_PLACE if field == "held" else places[field]
            sample = _Sample(target, place, is_error=code == "5xx")
        self._sample_of_head[head] = sample
        return sample


def _labels(text: str) -> dict[str, str]:
    return {
        name: _ESCAPED.sub(_plain, value) if "\\" in value else value for name, value in _LABEL.findall(text)
    }


def _plain(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
