"""The configuration of the HTTP filters for language models: two of Envoy's module.

The module is in C: `module/filter.c` reads requests and limits their size, `module/models.c` routes by model,
and `module/token_accounting.c` counts tokens. `counts/count_table.py` reads the counts.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Struct

from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy import module
from serving.router.envoy.resource import pack
from serving.router.plan import openai_errors
from serving.router.plan.service import GatewayService
from serving.settings import GatewaySettings

TOKENS_FILTER = "slipway.tokens"
"""Name of the module's filter that counts the tokens of requests and answers, by backend."""
MODELS_FILTER = "slipway.models"
"""Name of the module's filter that routes a request to the service of the model that its body names. Only the
address of all language models of a namespace (`/NAMESPACE/openai/`) enables the filter."""
_TYPE = "type.googleapis.com/envoy.extensions"


@dataclass(frozen=True)
class RouteAdditions:
    """The filters that a language model's route enables, and the metadata that the module reads there."""

    filters: dict[str, AnyMessage] = field(default_factory=dict)
    """Configuration of the route for each filter, by the filter's name (`typed_per_filter_config`)."""
    metadata: dict[str, Struct] = field(default_factory=dict)
    """By metadata namespace, which is `TOKENS_FILTER` for all filters of the module (`filter_metadata`)."""


def filters(assign_caller: dict[str, Any], settings: GatewaySettings) -> list[dict[str, Any]]:
    """Return the HTTP filters of a listener in their order; each is disabled unless a route enables it.

    Args:
        assign_caller: the filter that assigns callers to arms. `MODELS_FILTER` must have chosen the service
            before, and `TOKENS_FILTER` needs the backend of the arm.
        settings: the gateway's settings.
    """
    return [_module(MODELS_FILTER, settings), assign_caller, _module(TOKENS_FILTER, settings)]


def local_replies(settings: GatewaySettings) -> list[dict[str, Any]]:
    """Return the mappers of local replies: the module's keep their body, which has OpenAI's form, and a
    request that is too large gets an error in this form.
    """
    too_large = {"comparison": {"op": "EQ", "value": {"default_value": 413, "runtime_key": "unused"}}}
    message = f"the request must be at most {settings.language_request_bytes} bytes"
    error = openai_errors.document(413, message, "request_too_large")
    unchanged = {
        "text_format_source": {"inline_string": "%LOCAL_REPLY_BODY%"},
        "content_type": "application/json",
    }
    return [
        {"filter": _is_module_reply(), "body_format_override": unchanged},
        {
            "filter": {"and_filter": {"filters": [has_openai_path(), {"status_code_filter": too_large}]}},
            "body_format_override": {"json_format": error, "content_type": "application/json"},
        },
    ]


def has_openai_path() -> dict[str, Any]:
    """Return the condition, an access log filter, that a request is of OpenAI's API."""
    path = {"name": ":path", "string_match": {"safe_regex": {"regex": openai_errors.PATH}}}
    return {"header_filter": {"header": path}}


def of_models(base: str, names: Iterable[str]) -> RouteAdditions:
    """Return the additions of the route `/NAMESPACE/openai/`, the address of all language models there.

    Args:
        base: the path of the namespace, with slashes around it.
        names: names of the namespace's language models.
    """
    documents = {name: json.dumps({"id": name, "object": "model", "owned_by": "slipway"}) for name in names}
    listed = '{"object":"list","data":[' + ",".join(documents.values()) + "]}"
    models = {f"model:{name}": document for name, document in documents.items()}
    # `MODELS_FILTER` chooses a service, whose tokens `TOKENS_FILTER` counts.
    return RouteAdditions(
        filters=_enabled(MODELS_FILTER) | _enabled(TOKENS_FILTER),
        metadata=_metadata({"base": base, "list": listed, **models}),
    )


def of_service(service: GatewayService) -> RouteAdditions:
    """Return the additions of a service's route; none if its tokens are not counted."""
    if not service.counts_tokens:
        return RouteAdditions()
    usage_by_cluster = {segment.cluster: service.token_usage for segment in service.ring}
    return RouteAdditions(_enabled(TOKENS_FILTER), _metadata(usage_by_cluster))


def _enabled(name: str) -> dict[str, AnyMessage]:
    """Return the configuration of a route that enables a filter; Envoy takes an empty `config` for that."""
    return {name: pack(envoy.FilterConfig(config=AnyMessage()))}


def _metadata(values: dict[str, str]) -> dict[str, Struct]:
    """Return the filter metadata of a route, from which the module reads `values`."""
    struct = Struct()
    struct.update(values)
    return {TOKENS_FILTER: struct}


def _module(name: str, settings: GatewaySettings) -> dict[str, Any]:
    # The module refuses a larger request after its end, as Envoy's own refusal resets the connection of a
    # client that still sends. It ignores the digest: with the digest, another library makes another
    # bootstrap, so that a gateway does not adopt an Envoy that has loaded another library.
    value = f"{settings.language_request_bytes} {module.digest()}"
    config = {
        "@type": f"{_TYPE}.filters.http.dynamic_modules.v3.DynamicModuleFilter",
        "dynamic_module_config": module.config(),
        "filter_name": name,
        "filter_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": value},
    }
    return {"name": name, "disabled": True, "typed_config": config}


def _is_module_reply() -> dict[str, Any]:
    """Return the condition, an access log filter, that the module has replied (`respond` in `models.c`)."""
    matcher = {"filter": TOKENS_FILTER, "path": [{"key": "reply"}], "value": {"present_match": True}}
    return {"metadata_filter": {"matcher": matcher, "match_if_key_not_found": False}}
