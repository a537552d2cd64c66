"""The configuration of Envoy's module that counts the tokens of language models, and its counts as values.

The counting itself is in C, in `module/accounting.c`. For each backend there are pairs of counters:
what requests admit, and what they settle as tokens are read and generated. Their difference waits. Envoy
tells the module of every end of a request, that of an aborted one included, so that no request leaves a
difference behind.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import UInt32Value

from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy import module
from serving.router.envoy.module import METRICS_NAMESPACE
from serving.router.envoy.resource import pack
from serving.router.plan.service import GatewayService, socket_name
from serving.settings import GatewaySettings

FILTER = "slipway.tokens"
MODELS_FILTER = "slipway.models"
"""The same module at the address of a namespace's models: before callers are assigned to arms."""
BUFFER_FILTER = "slipway.whole-request"
"""Reads a request as a whole, up to its own limit; a connection's buffer is smaller."""
PAIRS = ("prompt", "output", "requests", "started")
"""Of counters: prompt tokens, expected tokens of the answer, requests, and start times in tenths of a second
since `EPOCH`, all of requests without a first token, except for `output`."""
EPOCH = 1_767_225_600.0
"""Unix seconds: 2026-01-01, as in the module."""
BOUNDS_US = (
    1_000.0,
    2_500.0,
    5_000.0,
    10_000.0,
    20_000.0,
    50_000.0,
    100_000.0,
    200_000.0,
    500_000.0,
    1_000_000.0,
    2_000_000.0,
    5_000_000.0,
    10_000_000.0,
    30_000_000.0,
    60_000_000.0,
)
"""Upper bounds of histograms: from an inter-token latency of a small model to a first token after a start."""

STATISTICS = rf"{METRICS_NAMESPACE}\..*"
"""Regular expression of the statistics."""
QUERY = rf"^{METRICS_NAMESPACE}\."
"""Regular expression of the statistics that `parse` reads."""

_TYPE = "type.googleapis.com/envoy.extensions"
_HISTOGRAMS = {"first_token_us": "first_token", "inter_token_us": "inter_token"}


@dataclass(frozen=True)
class RouteAdditions:
    """Filters and metadata of a language model's route."""

    filters: dict[str, AnyMessage] = field(default_factory=dict)
    """Configuration by filter."""
    metadata: dict[str, Struct] = field(default_factory=dict)
    """Filter metadata by namespace, which the module reads."""


def filters(assign_caller: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the filters in their order, which only routes of language models enable.

    Args:
        assign_caller: the filter that assigns callers to arms; a request has its service before, and its arm
            afterwards.
    """
    limit = {"@type": f"{_TYPE}.filters.http.buffer.v3.Buffer", "max_request_bytes": 1}
    return [
        {"name": BUFFER_FILTER, "disabled": True, "typed_config": limit},
        _module(MODELS_FILTER),
        assign_caller,
        _module(FILTER),
    ]


def local_replies(settings: GatewaySettings) -> list[dict[str, Any]]:
    """Return the rules for replies to requests of OpenAI's API: all have its form, the module's already."""
    path = {
        "name": ":path",
        "string_match": {"safe_regex": {"regex": r"[^?]*/v1/(chat/)?completions(\?.*)?"}},
    }
    too_large = {"comparison": {"op": "EQ", "value": {"default_value": 413, "runtime_key": "unused"}}}
    error = {
        "message": f"the request must be at most {settings.language_request_bytes} bytes",
        "type": "invalid_request_error",
        "param": None,
        "code": "request_too_large",
    }
    text = {"text_format_source": {"inline_string": "%LOCAL_REPLY_BODY%"}, "content_type": "application/json"}
    return [
        {"filter": _replied(), "body_format_override": text},
        {
            "filter": {
                "and_filter": {
                    "filters": [{"header_filter": {"header": path}}, {"status_code_filter": too_large}]
                }
            },
            "body_format_override": {"json_format": {"error": error}, "content_type": "application/json"},
        },
    ]


def histogram_buckets() -> list[dict[str, Any]]:
    """Return the settings of the histograms."""
    return [
        {"match": {"prefix": f"{METRICS_NAMESPACE}.{name}"}, "buckets": list(BOUNDS_US)}
        for name in _HISTOGRAMS
    ]


def of_models(base: str, names: Iterable[str], settings: GatewaySettings) -> RouteAdditions:
    """Return what the route of the address of a namespace's models has.

    Args:
        base: the path of the namespace, with slashes around it.
        names: of its language models.
        settings: the gateway's.
    """
    documents = {name: json.dumps({"id": name, "object": "model", "owned_by": "slipway"}) for name in names}
    listed = '{"object":"list","data":[' + ",".join(documents.values()) + "]}"
    models = {f"model:{name}": document for name, document in documents.items()}
    # The second filter is for the service that the first one finds.
    return RouteAdditions(
        filters=_whole_request(settings) | _enabled(MODELS_FILTER) | _enabled(FILTER),
        metadata=_metadata({"base": base, "list": listed, **models}),
    )


def of_service(service: GatewayService, settings: GatewaySettings) -> RouteAdditions:
    """Return what the route of a service has; nothing without tokens."""
    if service.token_usage == "none":
        return RouteAdditions()
    backends = {
        segment.cluster: f"{socket_name(segment.cluster)} {service.token_usage}" for segment in service.ring
    }
    return RouteAdditions(_whole_request(settings) | _enabled(FILTER), _metadata(backends))


@dataclass(frozen=True)
class Latencies:
    """A histogram: for each of `BOUNDS_US`, and without a bound, how many were at most so long."""

    at_most: tuple[int, ...] = (0,) * (len(BOUNDS_US) + 1)
    seconds: float = 0.0
    """Their sum."""


@dataclass
class TokenCounts:
    """The counts of one backend since Envoy's start."""

    counters: dict[str, int] = field(default_factory=dict)
    """By name; `X_admitted` and `X_settled` for each of `PAIRS`."""
    first_token: Latencies = Latencies()
    inter_token: Latencies = Latencies()

    @property
    def prompt_tokens(self) -> int:
        """Tokens of read prompts; estimated for requests that ended before the engine reported them."""
        return self.counters.get("prompt_tokens", 0) + self.counters.get("unread_settled", 0)

    @property
    def generated_tokens(self) -> int:
        """Tokens of answers, whether the client got all of them or not."""
        return self.counters.get("generated_tokens", 0)

    def waiting(self, name: str) -> int:
        """Return what requests have admitted and not settled, of one of `PAIRS`."""
        return max(0, self.counters.get(f"{name}_admitted", 0) - self.counters.get(f"{name}_settled", 0))

    def age(self, now: float) -> float:
        """Return the mean seconds since the arrival of the requests without a first token.

        Args:
            now: Unix seconds.
        """
        requests = self.waiting("requests")
        return max(0.0, now - EPOCH - self.waiting("started") / requests / 10) if requests else 0.0


_SAMPLE = re.compile(rf'envoy_{METRICS_NAMESPACE}_([a-z_]+)\{{backend="([0-9a-f]{{12}})"[^}}]*\}} (\S+)')


def parse(text: str) -> dict[str, TokenCounts]:
    """Return the counts on Envoy's page in Prometheus's format, by `socket_name` of a backend."""
    counts: dict[str, TokenCounts] = {}
    buckets: dict[tuple[str, str], list[int]] = {}
    sums: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        if sample := _SAMPLE.match(line):
            name, id_, value = sample.groups()
            own = counts.setdefault(id_, TokenCounts())
            stem, _, part = name.rpartition("_")
            if stem not in _HISTOGRAMS:
                own.counters[name] = own.counters.get(name, 0) + int(value)
            elif part == "bucket":
                buckets.setdefault((id_, stem), []).append(int(value))
            elif part == "sum":
                sums[id_, stem] = float(value)
    for (id_, stem), at_most in buckets.items():
        latencies = Latencies(tuple(at_most), sums.get((id_, stem), 0.0) / 1e6)
        setattr(counts[id_], _HISTOGRAMS[stem], latencies)
    return counts


def _whole_request(settings: GatewaySettings) -> dict[str, AnyMessage]:
    limit = envoy.Buffer(max_request_bytes=UInt32Value(value=settings.language_request_bytes))
    return {BUFFER_FILTER: pack(envoy.BufferPerRoute(buffer=limit))}


def _enabled(name: str) -> dict[str, AnyMessage]:
    """Return the configuration of a route that enables a filter; Envoy takes an empty `config` for that."""
    return {name: pack(envoy.FilterConfig(config=AnyMessage()))}


def _metadata(values: dict[str, str]) -> dict[str, Struct]:
    struct = Struct()
    struct.update(values)
    return {FILTER: struct}


def _module(name: str) -> dict[str, Any]:
    digest = {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": module.digest()}
    config = {
        "@type": f"{_TYPE}.filters.http.dynamic_modules.v3.DynamicModuleFilter",
        "dynamic_module_config": module.config(),
        "filter_name": name,
        # The module ignores it: an Envoy with another library has another bootstrap, and is not adopted.
        "filter_config": digest,
    }
    return {"name": name, "disabled": True, "typed_config": config}


def _replied() -> dict[str, Any]:
    """Return the filter of requests to which the module has replied with a document."""
    matcher = {"filter": FILTER, "path": [{"key": "reply"}], "value": {"present_match": True}}
    return {"metadata_filter": {"matcher": matcher, "match_if_key_not_found": False}}
