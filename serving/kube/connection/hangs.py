"""Distinguishes an API that hangs from an API that takes long for one request.

An API that hangs answers no other request either.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

from serving import errors

T = TypeVar("T")

PATIENCE_SECONDS = 1.0
"""Wait for the answer before the API is asked for its version. A command should report a hung API within 5 s:
PATIENCE_SECONDS and PROBE_SECONDS leave 2 s of these to the command's start on a busy machine.
"""
PROBE_SECONDS = 2.0
"""Longest wait for the API's version, a request that needs neither storage nor webhooks."""
ACCEPT_SECONDS = 0.5
"""Longest wait for a TCP connection, which takes a millisecond in a data centre and 0.2 s across an ocean."""
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
                    f"the API at {server} accepts connections, but has not answered for {spent:.0f} s"
                    f" ({request})"
                )
            raise errors.Unavailable(f"{request}: {server} has not answered for {spent:.0f} s")
        return waiting.result()
    finally:
        waiting.cancel()


async def _answers(probe: Callable[[], Awaitable[None]]) -> bool:
    """Whether the API answers, or fails at once: the request itself then fails with the same reason."""
    try:
        await probe()
    except errors.Unavailable as error:
        return not isinstance(error.__cause__, TimeoutError)
    return True


async def _accepts(server: str) -> bool:
    """Whether the host and port of a URL accept a TCP connection within ACCEPT_SECONDS."""
    parts = urlsplit(server)
    port = parts.port or _PORTS.get(parts.scheme, 443)
    try:
        async with asyncio.timeout(ACCEPT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
