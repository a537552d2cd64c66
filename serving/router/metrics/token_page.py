"""The families of the gateway's metrics page about tokens, in Prometheus's text format. Pure."""

from collections.abc import Callable, Iterator, Mapping

from serving.router.envoy.token_accounting import BOUNDS_US, Latencies, TokenCounts
from serving.router.metrics.labels import Labels, family

PROMPT = "slipway_prompt_tokens_total"
GENERATED = "slipway_generated_tokens_total"
WAITING = "slipway_tokens_waiting"
QUEUE_REQUESTS = "slipway_token_queue_requests"
QUEUE_AGE = "slipway_token_queue_age_seconds"
FIRST_TOKEN = "slipway_time_to_first_token_seconds"
INTER_TOKEN = "slipway_inter_token_latency_seconds"

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

    def samples(name: str, value: Callable[[TokenCounts], float]) -> Iterator[str]:
        return (f"{name}{{{text}}} {value(item):.10g}\n" for text, item in own)

    waiting = (
        f'{WAITING}{{{text},kind="{kind}"}} {item.waiting(kind)}\n'
        for text, item in own
        for kind in ("prompt", "output")
    )
    first_token = (_histogram(FIRST_TOKEN, text, item.first_token) for text, item in own)
    inter_token = (_histogram(INTER_TOKEN, text, item.inter_token) for text, item in own)
    return "".join(
        (
            family(
                PROMPT,
                "counter",
                "Tokens of prompts that were read.",
                samples(PROMPT, lambda c: c.prompt_tokens),
            ),
            family(
                GENERATED,
                "counter",
                "Tokens that were generated.",
                samples(GENERATED, lambda c: c.generated_tokens),
            ),
            family(
                WAITING,
                "gauge",
                "Estimated tokens of requests in flight: of prompts that are not read yet, and of answers that"
                " are not generated yet.",
                waiting,
            ),
            family(
                QUEUE_REQUESTS,
                "gauge",
                "Requests without a first token.",
                samples(QUEUE_REQUESTS, lambda c: c.waiting("requests")),
            ),
            family(
                QUEUE_AGE,
                "gauge",
                "Mean time since the arrival of these requests.",
                samples(QUEUE_AGE, lambda c: c.age(read_at)),
            ),
            family(
                FIRST_TOKEN,
                "histogram",
                "Time from a request of a stream to its first token.",
                first_token,
            ),
            family(INTER_TOKEN, "histogram", "Time between two tokens of a stream.", inter_token),
        )
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
