"""Tells an API that hangs from one that takes long for a request: one that hangs answers no other request."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

from serving import errors

T = TypeVar("T")

PATIENCE_SECONDS = 1.0
"""Without an answer before the API is asked for its version. With PROBE_SECONDS it leaves 2 s of a user's 5 s
to the start of the command on a busy machine."""
PROBE_SECONDS = 2.0
"""Longest answer to a request for the version, which needs neither storage nor webhooks."""
ACCEPT_SECONDS = 0.5
"""Longest connect; a connect in a data centre takes a millisecond, across an ocean 0.2 s."""
_PORTS = {"http": 80, "https": 443}


async def unless_hung(
    answer: Coroutine[Any, Any, T], request: str, server: str, probe: Callable[[], Awaitable[None]]
) -> T:
    """Return the answer to a request, however long it takes while the API answers `probe`.

    Args:
        answer: waits for the answer.
        request: method and path, for the message.
        server: URL of the API.
        probe: asks the API for something that costs nothing; raises `errors.Unavailable` from a TimeoutError
            after PROBE_SECONDS without an answer.

    Raises:
        errors.Hung: the API accepts connections, and answers neither the request nor the probe.
        errors.Unavailable: the API accepts no connections.
    """
    waiting = asyncio.ensure_future(answer)
    started = asyncio.get_running_loop().time()
    try:
        while not (await asyncio.wait({waiting}, timeout=PATIENCE_SECONDS))[0]:
            if await _answers(probe) or waiting.done():
                continue
            spent = asyncio.get_running_loop().time() - started
            if await _accepts(server):
                raise errors.Hung(
                    f"the API at {server} accepts connections, but has not answered for {spent:.0f} s ({request})"
                )
            raise errors.Unavailable(f"{request}: {server} has not answered for {spent:.0f} s")
        return waiting.result()
    finally:
        waiting.cancel()


async def _answers(probe: Callable[[], Awaitable[None]]) -> bool:
    """Whether the API answers, or fails at once: then the request itself fails with the reason."""
    try:
        await probe()
    except errors.Unavailable as error:
        return not isinstance(error.__cause__, TimeoutError)
    return True


async def _accepts(server: str) -> bool:
    parts = urlsplit(server)
    port = parts.port or _PORTS.get(parts.scheme, 443)
    try:
        async with asyncio.timeout(ACCEPT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
