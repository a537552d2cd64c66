"""Sends requests again that a busy API server refuses, as its priority and fairness ask of clients.

It repeats nothing that the server may have executed.
"""

import asyncio
from collections.abc import Awaitable, Callable

from serving import errors

MOST_REPEATS = 10
"""Of one request, as of client-go (`maxRetries` in k8s.io/client-go/rest/request.go)."""
MOST_SECONDS = 30.0
"""Seconds that one request waits for a busy server: as long as one waits for an answer."""


async def repeated(send: Callable[[], Awaitable[bytes]]) -> bytes:
    """Return the result of `send`, after the pauses that the server asks for.

    Raises:
        errors.Busy: the server refuses the request still.
        errors.ApiError, errors.Unavailable: as `send` does.
    """
    waited = 0.0
    for _ in range(MOST_REPEATS):
        try:
            return await send()
        except errors.Busy as error:
            waited += error.retry_after
            if waited > MOST_SECONDS:
                raise
            await asyncio.sleep(error.retry_after)
    return await send()
