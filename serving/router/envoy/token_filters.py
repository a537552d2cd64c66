"""The configuration of Envoy's module that counts the tokens of language models.

The counting itself is in C, in `module/token_accounting.c`; `counts/count_table.py` reads the counts.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import UInt32Value

from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy import module
from serving.router.envoy.resource import pack
from serving.router.plan import openai_errors
from serving.router.plan.service import GatewayService
from serving.settings import GatewaySettings

FILTER = "slipway.tokens"
MODELS_FILTER = "slipway.models"
"""The same module at the address of a namespace's models: before callers are assigned to arms."""
BUFFER_FILTER = "slipway.whole-request"
"""Reads a request as a whole, up to its own limit; a connection's buffer is smaller."""
_TYPE = "type.googleapis.com/envoy.extensions"


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
    """Return the rules for the module's replies, which have OpenAI's form already, and for large requests."""
    too_large = {"comparison": {"op": "EQ", "value": {"default_value": 413, "runtime_key": "unused"}}}
    message = f"the request must be at most {settings.language_request_bytes} bytes"
    error = openai_errors.document(413, message, "request_too_large")
    text = {"text_format_source": {"inline_string": "%LOCAL_REPLY_BODY%"}, "content_type": "application/json"}
    return [
        {"filter": _replied(), "body_format_override": text},
        {
            "filter": {"and_filter": {"filters": [has_openai_path(), {"status_code_filter": too_large}]}},
            "body_format_override": {"json_format": error, "content_type": "application/json"},
        },
    ]


def has_openai_path() -> dict[str, Any]:
    """Return the filter of requests of OpenAI's API."""
    path = {"name": ":path", "string_match": {"safe_regex": {"regex": openai_errors.PATH}}}
    return {"header_filter": {"header": path}}


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
    usage = {segment.cluster: service.token_usage for segment in service.ring}
    return RouteAdditions(_whole_request(settings) | _enabled(FILTER), _metadata(usage))


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
