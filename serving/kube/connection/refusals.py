"""Sends requests again that a busy API server refuses, as its priority and fairness ask of clients.

It repeats nothing that the server may have executed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from serving import errors

MOST_REPEATS = 10
"""Of one request, as of client-go (`maxRetries` in k8s.io/client-go/rest/request.go)."""
LEAST_PAUSE_SECONDS = 0.5
"""Least pause before a repeat: a server may ask for none, and by a date for one that has passed already, as
its clock differs. Ten repeats then take five seconds, not a moment."""
MOST_SECONDS = 30.0
"""Seconds that one request waits for a busy server: as long as one waits for an answer."""
_IS_PASSED_ON: ContextVar[bool] = ContextVar("refusals are passed on", default=False)


@contextmanager
def passed_on() -> Iterator[None]:
    """Raise `errors.Busy` at once from requests in the block: its caller repeats them itself."""
    token = _IS_PASSED_ON.set(True)
    try:
        yield
    finally:
        _IS_PASSED_ON.reset(token)


async def repeated(send: Callable[[], Awaitable[bytes]]) -> bytes:
    """Return the result of `send`, after the pauses that the server asks for, or `LEAST_PAUSE_SECONDS`.

    Raises:
        errors.Busy: the server refuses the request still, or for the first time in a block of `passed_on`.
        errors.ApiError, errors.Unavailable: as `send` does.
    """
    waited = 0.0
    for _ in range(MOST_REPEATS):
        try:
            return await send()
        except errors.Busy as error:
            pause = max(error.retry_after, LEAST_PAUSE_SECONDS)
            waited += pause
            if waited > MOST_SECONDS or _IS_PASSED_ON.get():
                raise
            await asyncio.sleep(pause)
    return await send()
