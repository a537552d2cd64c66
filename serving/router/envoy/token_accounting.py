"""Envoy's accounting of language models' tokens: a Lua filter that counts, and an access log that settles.

For each backend there are pairs of counters: what requests admit, and what they settle as tokens are read and
generated. Their difference waits. The filter does not run at the end of an aborted request, so the access log
settles the rest, which the filter keeps in the request's metadata. No request leaves a difference behind.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import UInt32Value

from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy.resource import pack
from serving.router.plan.service import ClusterSegment, GatewayService, socket_name
from serving.settings import GatewaySettings

FILTER = "slipway.tokens"
MODELS_FILTER = "slipway.models"
"""The same script at the address of a namespace's models: before callers are assigned to arms."""
BUFFER_FILTER = "slipway.whole-request"
"""Reads a request as a whole, up to its own limit; a connection's buffer is smaller."""
LOG = "slipway_tokens"
"""Prefix of the statistics of the access log."""
PAIRS = ("prompt", "output", "requests", "started")
"""Of counters: prompt tokens, expected tokens of the answer, requests, and start times in tenths of a second
since `EPOCH`, all of requests without a first token, except for `output`."""
EPOCH = 1_767_225_600.0
"""Unix seconds: 2026-01-01, as in the script."""
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
"""Upper bounds of histograms, from an inter-token latency of a small model to a first token after a cold start."""

STATISTICS = f"{LOG}\\..*"
"""Regular expression of the access log's statistics; those of the filter begin with `http.`."""
QUERY = rf"^(http\.public\.lua\.tokens\.[0-9a-f]|{LOG}\.)"
"""Regular expression of the statistics that `parse` reads."""

_TYPE = "type.googleapis.com/envoy.extensions"
_HISTOGRAMS = {"first_token_us": "first_token", "inter_token_us": "inter_token"}


def filters(assign_caller: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the filters in their order, which only routes of language models enable.

    Args:
        assign_caller: the filter that assigns callers to arms; a request has its service before, and its arm
            afterwards.
    """
    limit = {"@type": f"{_TYPE}.filters.http.buffer.v3.Buffer", "max_request_bytes": 1}
    return [
        {"name": BUFFER_FILTER, "disabled": True, "typed_config": limit},
        _lua(MODELS_FILTER, "models"),
        assign_caller,
        _lua(FILTER, "tokens"),
    ]


def script() -> str:
    """Return the source of the Lua filter."""
    return files(__package__).joinpath("token_accounting.lua").read_text()


def access_log() -> dict[str, Any]:
    """Return the access log of requests to language models, which writes statistics instead of lines."""
    return {
        "name": FILTER,
        "filter": _has("request", "id"),
        "typed_config": {
            "@type": f"{_TYPE}.access_loggers.stats.v3.Config",
            "stats_scope": {"prefix": LOG},
            "counters": [_counter(name) for name in (*PAIRS, "unread")],
        },
    }


def local_replies(settings: GatewaySettings) -> list[dict[str, Any]]:
    """Return the rules for replies to requests of OpenAI's API: all have its form, those of the script already."""
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
        {"filter": _has("reply"), "body_format_override": text},
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
    return [{"match": {"suffix": name}, "buckets": list(BOUNDS_US)} for name in _HISTOGRAMS]


def of_segment(service: GatewayService, segment: ClusterSegment) -> dict[str, AnyMessage]:
    """Return the configuration that makes the filter count for a backend; empty without tokens."""
    if service.token_usage == "none":
        return {}
    context = Struct()
    context.update({"id": socket_name(segment.cluster), "continuous": service.token_usage == "continuous"})
    return {FILTER: pack(envoy.LuaPerRoute(filter_context=context))}


def of_models(base: str, names: Iterable[str], settings: GatewaySettings) -> dict[str, AnyMessage]:
    """Return the configuration of the address of a namespace's models.

    Args:
        base: the path of the namespace, with slashes around it.
        names: of its language models.
        settings: the gateway's.
    """
    documents = {name: json.dumps({"id": name, "object": "model", "owned_by": "slipway"}) for name in names}
    models, nothing = Struct(), Struct()
    models.update({"base": base, "models": {**documents, "*": ",".join(documents.values())}})
    return {
        **_whole_request(settings),
        MODELS_FILTER: pack(envoy.LuaPerRoute(filter_context=models)),
        FILTER: pack(envoy.LuaPerRoute(filter_context=nothing)),  # that of the service follows
    }


def of_route(service: GatewayService, settings: GatewaySettings) -> dict[str, AnyMessage]:
    """Return the configuration of a service's route; empty without tokens."""
    if service.token_usage == "none":
        return {}
    return _whole_request(settings)


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


_SAMPLE = re.compile(r"envoy_http_lua_tokens_([0-9a-f]{12})_([a-z_]+)\{[^}]*\} (\S+)")
_SETTLED = re.compile(rf'(?:envoy_)?{LOG}_([a-z]+_settled)\{{.*?backend="([0-9a-f]{{12}})"[^}}]*\}} (\d+)')


def parse(text: str) -> dict[str, TokenCounts]:
    """Return the counts on Envoy's page in Prometheus's format, by `socket_name` of a backend."""
    counts: dict[str, TokenCounts] = {}
    buckets: dict[tuple[str, str], list[int]] = {}
    sums: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        if sample := _SAMPLE.match(line):
            id_, name, value = sample.groups()
            own = counts.setdefault(id_, TokenCounts())
            stem, _, part = name.rpartition("_")
            if stem not in _HISTOGRAMS:
                own.counters[name] = own.counters.get(name, 0) + int(value)
            elif part == "bucket":
                buckets.setdefault((id_, stem), []).append(int(value))
            elif part == "sum":
                sums[id_, stem] = float(value)
        elif settled := _SETTLED.match(line):
            name, id_, value = settled.groups()
            own = counts.setdefault(id_, TokenCounts())
            own.counters[name] = own.counters.get(name, 0) + int(value)
    for (id_, stem), at_most in buckets.items():
        latencies = Latencies(tuple(at_most), sums.get((id_, stem), 0.0) / 1e6)
        setattr(counts[id_], _HISTOGRAMS[stem], latencies)
    return counts


def _whole_request(settings: GatewaySettings) -> dict[str, AnyMessage]:
    limit = envoy.Buffer(max_request_bytes=UInt32Value(value=settings.language_request_bytes))
    return {BUFFER_FILTER: pack(envoy.BufferPerRoute(buffer=limit))}


def _lua(name: str, stat_prefix: str) -> dict[str, Any]:
    config = {
        "@type": f"{_TYPE}.filters.http.lua.v3.Lua",
        "default_source_code": {"inline_string": script()},
        "stat_prefix": stat_prefix,
    }
    return {"name": name, "disabled": True, "typed_config": config}


def _counter(name: str) -> dict[str, Any]:
    return {
        "stat": {
            "name": f"{name}_settled",
            "tags": [{"name": "backend", "value_format": _metadata("request", "id")}],
        },
        "value_format": _metadata("left", name),
    }


def _has(*keys: str) -> dict[str, Any]:
    """Return the filter of requests whose metadata have this value."""
    matcher = {"filter": FILTER, "path": [{"key": key} for key in keys], "value": {"present_match": True}}
    return {"metadata_filter": {"matcher": matcher, "match_if_key_not_found": False}}


def _metadata(*keys: str) -> str:
    return f"%DYNAMIC_METADATA({':'.join((FILTER, *keys))})%"
