"""The parts of a request's body, as an ASGI server passes them. The callers bound the size of the body."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from serving import errors

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
"""`receive` of ASGI: returns the connection's next message."""


def part(message: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Return the next part of a body, and whether more follow.

    Raises:
        errors.ApiError: 400, the client disconnected before the end.
    """
    if message["type"] == "http.disconnect":
        raise errors.ApiError(400, "BadRequest", "body: the client disconnected before its end")
    return message.get("body", b""), message.get("more_body", False)
