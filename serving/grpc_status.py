"""gRPC's status of a response that has no message: HTTP headers that Envoy passes on as they are.

Runtimes and the activator speak HTTP/1.1 to Envoy, which has no trailers. A response without a body carries
the status in its headers ("Trailers-Only" in https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).
"""

from collections.abc import Mapping
from urllib.parse import quote

CONTENT_TYPE = "application/grpc"
"""The content type of every gRPC request and response that Envoy exchanges with a server of HTTP/1.1."""

UNKNOWN = 2
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
RESOURCE_EXHAUSTED = 8
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14

STATUS_OF: Mapping[int, int] = {
    400: INVALID_ARGUMENT,
    404: NOT_FOUND,
    405: UNIMPLEMENTED,
    408: DEADLINE_EXCEEDED,
    413: RESOURCE_EXHAUSTED,
    429: RESOURCE_EXHAUSTED,
    500: INTERNAL,
    502: UNAVAILABLE,
    503: UNAVAILABLE,
    504: DEADLINE_EXCEEDED,
}
"""gRPC's status by the HTTP status of the same error; clients retry UNAVAILABLE, as they do 503."""

_UNESCAPED = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_MESSAGE_CHARACTERS = 512
"""Longest message: gRPC clients accept 8 KiB of headers by default, and a character takes up to 12 bytes."""


def headers(http_status: int, message: str) -> dict[str, str]:
    """Return the headers, besides the content type, of the response to a gRPC request that failed."""
    shown = message if len(message) <= _MESSAGE_CHARACTERS else f"{message[: _MESSAGE_CHARACTERS - 3]}..."
    return {
        "grpc-status": str(STATUS_OF.get(http_status, UNKNOWN)),
        "grpc-message": quote(shown, safe=_UNESCAPED, errors="replace"),
    }
