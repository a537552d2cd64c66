"""The families of the gateway's metrics page about tokens, in Prometheus's text format. Pure."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from serving.resources.formats.metrics_text import family
from serving.resources.metric_names import (
    FIRST_TOKEN,
    GENERATED_TOKENS,
    INTER_TOKEN,
    PROMPT_TOKENS,
    QUEUE_AGE,
    QUEUE_REQUESTS,
    TOKENS_WAITING,
)
from serving.router.envoy.counts.token_counts import BOUNDS_US, Latencies, TokenCounts
from serving.router.metrics.labels import Labels

_WAITING_TEXT = (
    "Estimated tokens of requests in flight: of prompts that are not read yet, and of answers that are not"
    " generated yet."
)
_BOUNDS = (*(f"{bound / 1e6:g}" for bound in BOUNDS_US), "+Inf")
"""Upper bounds of the buckets, in seconds (`le`)."""


class _NumberFamily(NamedTuple):
    """A family with one number for each revision."""

    name: str
    kind: str
    help: str
    value: Callable[[TokenCounts], float]


class _HistogramFamily(NamedTuple):
    """A family with one histogram for each revision."""

    name: str
    help: str
    latencies: Callable[[TokenCounts], Latencies]


_HISTOGRAMS = (
    _HistogramFamily(
        FIRST_TOKEN, "Time from a request of a stream to its first token.", lambda counts: counts.first_token
    ),
    _HistogramFamily(INTER_TOKEN, "Time between two tokens of a stream.", lambda counts: counts.inter_token),
)


def families(counts: Mapping[str, TokenCounts], labels: Mapping[str, Labels], read_at: float) -> str:
    """Return the families; an empty text without counts.

    Args:
        counts: by cluster.
        labels: of the clusters on the page.
        read_at: Unix seconds of the reading.
    """
    counts_by_labels = [
        (labels[cluster].text, item) for cluster, item in sorted(counts.items()) if cluster in labels
    ]
    if not counts_by_labels:
        return ""

    waiting = (
        f'{TOKENS_WAITING}{{{text},kind="{kind}"}} {item.waiting(kind)}\n'
        for text, item in counts_by_labels
        for kind in ("prompt", "output")
    )
    numbers = (
        family(
            number.name,
            number.kind,
            number.help,
            (f"{number.name}{{{text}}} {number.value(item):.10g}\n" for text, item in counts_by_labels),
        )
        for number in _numbers(read_at)
    )
    histograms = (
        family(
            histogram.name,
            "histogram",
            histogram.help,
            (_histogram(histogram.name, text, histogram.latencies(item)) for text, item in counts_by_labels),
        )
        for histogram in _HISTOGRAMS
    )
    return "".join((*numbers, family(TOKENS_WAITING, "gauge", _WAITING_TEXT, waiting), *histograms))


def _numbers(read_at: float) -> tuple[_NumberFamily, ...]:
    return (
        _NumberFamily(
            PROMPT_TOKENS, "counter", "Tokens of prompts that were read.", lambda counts: counts.prompt_tokens
        ),
        _NumberFamily(
            GENERATED_TOKENS, "counter", "Tokens that were generated.", lambda counts: counts.generated_tokens
        ),
        _NumberFamily(
            QUEUE_REQUESTS,
            "gauge",
            "Requests of streams without a first token.",
            lambda counts: counts.waiting("requests"),
        ),
        _NumberFamily(
            QUEUE_AGE,
            "gauge",
            "Mean time since the arrival of these requests.",
            lambda counts: counts.age(read_at),
        ),
    )


def _histogram(name: str, labels: str, latencies: Latencies) -> str:
    """Return the samples of one revision, whose labels are `labels` in Prometheus's format."""
    buckets = (
        f'{name}_bucket{{{labels},le="{bound}"}} {count}\n'
        for bound, count in zip(_BOUNDS, latencies.at_most, strict=True)
    )
    return (
        f"{''.join(buckets)}{name}_sum{{{labels}}} {latencies.seconds:.6f}\n"
        f"{name}_count{{{labels}}} {latencies.at_most[-1]}\n"
    )
