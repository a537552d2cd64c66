"""The families of the gateway's metrics page about tokens, in Prometheus's text format. Pure."""

from collections.abc import Callable, Mapping

from serving.router.envoy.counts.token_counts import BOUNDS_US, Latencies, TokenCounts
from serving.router.metrics.labels import Labels, family

PROMPT = "slipway_prompt_tokens_total"
GENERATED = "slipway_generated_tokens_total"
WAITING = "slipway_tokens_waiting"
QUEUE_REQUESTS = "slipway_token_queue_requests"
QUEUE_AGE = "slipway_token_queue_age_seconds"
FIRST_TOKEN = "slipway_time_to_first_token_seconds"
INTER_TOKEN = "slipway_inter_token_latency_seconds"

_WAITING_TEXT = (
    "Estimated tokens of requests in flight: of prompts that are not read yet, and of answers that are not"
    " generated yet."
)
_HISTOGRAMS: tuple[tuple[str, str, Callable[[TokenCounts], Latencies]], ...] = (
    (FIRST_TOKEN, "Time from a request of a stream to its first token.", lambda counts: counts.first_token),
    (INTER_TOKEN, "Time between two tokens of a stream.", lambda counts: counts.inter_token),
)
_BOUNDS = (*(f"{bound / 1e6:g}" for bound in BOUNDS_US), "+Inf")


def families(counts: Mapping[str, TokenCounts], labels: Mapping[str, Labels], read_at: float) -> str:
    """Return the families; an empty text without counts.

    Args:
        counts: by cluster.
        labels: of the clusters on the page.
        read_at: Unix seconds of the reading.
    """
    own = [(labels[cluster].text, item) for cluster, item in sorted(counts.items()) if cluster in labels]
    if not own:
        return ""

    waiting = (
        f'{WAITING}{{{text},kind="{kind}"}} {item.waiting(kind)}\n'
        for text, item in own
        for kind in ("prompt", "output")
    )
    numbers = (
        family(name, kind, text, (f"{name}{{{label}}} {value(item):.10g}\n" for label, item in own))
        for name, kind, text, value in _numbers(read_at)
    )
    histograms = (
        family(name, "histogram", text, (_histogram(name, label, of(item)) for label, item in own))
        for name, text, of in _HISTOGRAMS
    )
    return "".join((*numbers, family(WAITING, "gauge", _WAITING_TEXT, waiting), *histograms))


def _numbers(read_at: float) -> tuple[tuple[str, str, str, Callable[[TokenCounts], float]], ...]:
    """Return name, type, help text and value of the families with one number for each revision."""
    return (
        (PROMPT, "counter", "Tokens of prompts that were read.", lambda counts: counts.prompt_tokens),
        (GENERATED, "counter", "Tokens that were generated.", lambda counts: counts.generated_tokens),
        (
            QUEUE_REQUESTS,
            "gauge",
            "Requests without a first token.",
            lambda counts: counts.waiting("requests"),
        ),
        (
            QUEUE_AGE,
            "gauge",
            "Mean time since the arrival of these requests.",
            lambda counts: counts.age(read_at),
        ),
    )


def _histogram(name: str, labels: str, latencies: Latencies) -> str:
    buckets = (
        f'{name}_bucket{{{labels},le="{bound}"}} {count}\n'
        for bound, count in zip(_BOUNDS, latencies.at_most, strict=True)
    )
    return (
        f"{''.join(buckets)}{name}_sum{{{labels}}} {latencies.seconds:.6f}\n"
        f"{name}_count{{{labels}}} {latencies.at_most[-1]}\n"
    )
