"""Envoy's local replies: the answers to requests that no replica answers, as JSON or as a gRPC status.

Each kind of failure has one HTTP status and one reason. JSON has OpenAI's form for requests of its API.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from serving import grpc_status
from serving.router.envoy import token_filters
from serving.router.plan import openai_errors
from serving.settings import GatewaySettings

_OWN_GRPC_STATUS = (404, 408, 413, 429, 504)
"""HTTP statuses for which Envoy's gRPC status, such as UNIMPLEMENTED for 404, is replaced by that of
`grpc_status.STATUS_OF`."""

Json = dict[str, Any]
"""A part of Envoy's configuration as JSON."""


class _GatewayError(NamedTuple):
    """The answer to a request that no replica answers.

    `flags` are Envoy's response flags:
    https://www.envoyproxy.io/docs/envoy/latest/configuration/advanced/substitution_formatter
    """

    flags: tuple[str, ...]
    status: int
    reason: str
    message: str


_ERRORS = (
    _GatewayError(("UT", "UMSDR"), 504, "Timeout", "no answer within the timeout of this service"),
    _GatewayError(("UF", "UC", "UR"), 503, "ReplicaFailed", "a replica failed: %LOCAL_REPLY_BODY%"),
    _GatewayError(("UH",), 503, "NoReplica", "no replica of this predictor is ready"),
    _GatewayError(("UO",), 429, "TooManyRequests", "this predictor has as many requests as it may have"),
)
"""In order of precedence; UO is last, as a retry that the budget refuses adds UO to the flag of its
failure."""

_UNAVAILABLE = _GatewayError((), 503, "Unavailable", "%LOCAL_REPLY_BODY%")
"""Any other 503: the gateway starts, or has no memory for further requests (`envoy overloaded`)."""


def config(settings: GatewaySettings) -> Json:
    """Return the `local_reply_config` of a connection manager; Envoy uses the first mapper that matches."""
    errors = [(_has_flag(error), error) for error in _ERRORS]
    errors.append((_status("EQ", _UNAVAILABLE.status), _UNAVAILABLE))
    return {
        "mappers": [
            *token_filters.local_replies(settings),
            *_grpc_errors(),
            *_openai_errors(errors, settings),
            *(
                _mapper(condition, error, {"error": error.message, "reason": error.reason}, settings)
                for condition, error in errors
            ),
        ],
        "body_format": _json({"error": "%LOCAL_REPLY_BODY%"}),
    }


def _openai_errors(errors: Sequence[tuple[Json, _GatewayError]], settings: GatewaySettings) -> list[Json]:
    """Return the rules for local replies to requests of OpenAI's API."""
    has_path = token_filters.has_openai_path()
    # These rules keep Envoy's HTTP status; the status here only selects the error's `type`.
    others = [
        (_all_of(has_path, _status("GE", openai_errors.SERVER_ERROR)), openai_errors.SERVER_ERROR),
        (has_path, 400),
    ]
    return [
        *(
            _mapper(
                _all_of(has_path, condition),
                error,
                openai_errors.document(error.status, error.message, error.reason),
                settings,
            )
            for condition, error in errors
        ),
        *(
            {
                "filter": condition,
                "body_format_override": _json(openai_errors.document(status, "%LOCAL_REPLY_BODY%", None)),
            }
            for condition, status in others
        ),
    ]


def _mapper(condition: Json, error: _GatewayError, body: Json, settings: GatewaySettings) -> Json:
    """Return the rule for the local replies that a filter selects."""
    mapper = {"filter": condition, "status_code": error.status, "body_format_override": _json(body)}
    if error.status in (429, 503):
        header = {"key": "retry-after", "value": str(settings.retry_after_seconds)}
        mapper["headers_to_add"] = [{"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]
    return mapper


def _json(body: Json) -> Json:
    return {"json_format": body, "content_type": "application/json"}


def _grpc_errors() -> list[Json]:
    """Return the rules for local replies to gRPC requests: all in plain text, and all but the last with a
    gRPC status of our own.
    """
    is_grpc = {
        "header_filter": {
            "header": {"name": "content-type", "string_match": {"prefix": grpc_status.CONTENT_TYPE}}
        }
    }
    specific = [
        _grpc_error([is_grpc, _status("EQ", http_status)], grpc_status.STATUS_OF[http_status])
        for http_status in _OWN_GRPC_STATUS
    ]
    by_flag = [
        _grpc_error([is_grpc, _has_flag(error)], grpc_status.STATUS_OF[error.status], error.message)
        for error in _ERRORS
    ]
    return [*specific, *by_flag, {"filter": is_grpc, "body_format_override": _text("%LOCAL_REPLY_BODY%")}]


def _grpc_error(filters: list[Json], grpc_code: int, message: str = "%LOCAL_REPLY_BODY%") -> Json:
    return {
        "filter": _all_of(*filters),
        # Envoy adds its own gRPC status only to a reply without one.
        "headers_to_add": [{"header": {"key": "grpc-status", "value": str(grpc_code)}}],
        "body_format_override": _text(message),
    }


def _all_of(*filters: Json) -> Json:
    return {"and_filter": {"filters": list(filters)}}


def _status(comparison: str, http_status: int) -> Json:
    value = {"default_value": http_status, "runtime_key": "unused"}
    return {"status_code_filter": {"comparison": {"op": comparison, "value": value}}}


def _has_flag(error: _GatewayError) -> Json:
    return {"response_flag_filter": {"flags": list(error.flags)}}


def _text(message: str) -> Json:
    return {"text_format_source": {"inline_string": message}}
