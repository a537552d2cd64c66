"""The parts of a request's body, as an ASGI server passes them. The callers bound the size of the body."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from serving import errors

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
"""`receive` of ASGI: returns the connection's next message."""
_DISCARD_SECONDS = 30.0
"""Longest wait for the end of a body that is too large: 100 MB at 27 Mbit/s."""


def part(message: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Return the next part of a body, and whether more follow.

    Raises:
        errors.ApiError: 400, the client disconnected before the end.
    """
    if message["type"] == "http.disconnect":
        raise errors.ApiError(400, "BadRequest", "body: the client disconnected before its end")
    return message.get("body", b""), message.get("more_body", False)


async def discard(receive: Receive) -> None:
    """Read and drop the rest of a body, before an early answer is sent.

    Envoy resets a client that still sends when the answer comes, even if the replica keeps the connection
    open; the client then sees the reset instead of the answer.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            while (await receive()).get("more_body", False):
                pass
