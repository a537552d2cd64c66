"""The engine's metrics page, with the names of vLLM's: dashboards and autoscalers that know it know this one.

https://docs.vllm.ai/en/latest/usage/metrics.html
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from serving.resources import metric_names
from serving.runtimes.transformers.generation import FinishReason

# Upper bounds of histogram buckets in seconds: those of vLLM, with finer ones for small models.
_FIRST_TOKEN_BOUNDS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
_BETWEEN_TOKENS_BOUNDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
)
_WHOLE_REQUEST_BOUNDS = (
    0.05,
    0.1,
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
    300.0,
    3600.0,
)
_REASONS = {"stop": "stop", "length": "length", "cancelled": "abort", "error": "error"}
"""vLLM's label `finished_reason` by `FinishReason`."""


class EngineMetrics:
    """The counters, gauges and histograms of one engine; may be used from several threads."""

    def __init__(self, model: str) -> None:
        """Args: model: the name that clients know."""
        self._registry = CollectorRegistry()

        def labelled(kind: type, name: str, text: str, **options: object) -> object:
            metric = kind(name, text, ["model_name"], registry=self._registry, **options)
            return metric.labels(model)

        def gauge(name: str, text: str) -> Gauge:
            metric = labelled(Gauge, name, text)
            assert isinstance(metric, Gauge)
            return metric

        def counter(name: str, text: str) -> Counter:
            metric = labelled(Counter, name, text)
            assert isinstance(metric, Counter)
            return metric

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            metric = labelled(Histogram, name, text, buckets=buckets)
            assert isinstance(metric, Histogram)
            return metric

        self._running = gauge("vllm:num_requests_running", "Requests in the batch.")
        self._waiting = gauge("vllm:num_requests_waiting", "Requests that wait for a place in the batch.")
        self._waiting_tokens = gauge(
            metric_names.PROMPT_TOKENS_WAITING, "Prompt tokens of the waiting requests."
        )
        self._cache = gauge("vllm:kv_cache_usage_perc", "Share of the KV cache that is reserved, 0 to 1.")
        self._prompt_tokens = counter("vllm:prompt_tokens", "Prompt tokens read, or in the prefix cache.")
        self._queried_tokens = counter(
            "vllm:prefix_cache_queries", "Prompt tokens that were looked up in the prefix cache."
        )
        self._cached_tokens = counter(
            "vllm:prefix_cache_hits", "Prompt tokens that the prefix cache had, which were not read again."
        )
        self._generated_tokens = counter("vllm:generation_tokens", "Tokens generated.")
        self._first = histogram(
            "vllm:time_to_first_token_seconds", "From a request to its first token.", _FIRST_TOKEN_BOUNDS
        )
        self._between = histogram(
            "vllm:inter_token_latency_seconds", "Between two tokens of a request.", _BETWEEN_TOKENS_BOUNDS
        )
        self._whole = histogram(
            "vllm:e2e_request_latency_seconds", "From a request to its end.", _WHOLE_REQUEST_BOUNDS
        )
        ends = Counter(
            "vllm:request_success",
            "Requests that ended.",
            ["model_name", "finished_reason"],
            registry=self._registry,
        )
        self._ends = {reason: ends.labels(model, label) for reason, label in _REASONS.items()}

    def page(self) -> bytes:
        """Return the page in Prometheus's text form."""
        return generate_latest(self._registry)

    def load(self, *, running: int, waiting: int, waiting_tokens: int, cache: float) -> None:
        """Set the present load; `cache` is the share of the KV cache that holds running requests."""
        self._running.set(running)
        self._waiting.set(waiting)
        self._waiting_tokens.set(waiting_tokens)
        self._cache.set(cache)

    def prompt_tokens(self, count: int) -> None:
        """Count prompt tokens that have been read, or were in the prefix cache."""
        self._prompt_tokens.inc(count)

    def prefix(self, prompt: int, cached: int) -> None:
        """Count the tokens of a prompt, and those of them that the prefix cache had."""
        self._queried_tokens.inc(prompt)
        self._cached_tokens.inc(cached)

    def generated(self, submitted: float, last: float, now: float) -> None:
        """Count a generated token, and observe the time since the token before or, without one, the request.

        Args:
            submitted: when the request came, in seconds of one clock, as the others.
            last: when the token before was generated; 0 without one.
            now: when this token was generated.
        """
        self._generated_tokens.inc()
        if last:
            self._between.observe(now - last)
        else:
            self._first.observe(now - submitted)

    def finished(self, reason: FinishReason, submitted: float, now: float) -> None:
        """Count a request that ended, and observe its duration; times as for `generated`."""
        self._ends[reason].inc()
        self._whole.observe(now - submitted)
