"""Runs a component in a Pod: it works until kubelet stops it, and then leaves without losing a request.

It knows no component: the work and the way to leave are its arguments.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any


async def run(
    work: Coroutine[Any, Any, None], stopping: asyncio.Event, leave: Callable[[], Awaitable[None]]
) -> None:
    """Run the work until the event, then leave and cancel the work.

    If the work ends before the event, return, or raise its error, at once. An error during `leave` is raised
    after `leave`.
    """
    running = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait([running, stop], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            await leave()
    finally:
        stop.cancel()
        running.cancel()
        await asyncio.wait([running])
    with suppress(asyncio.CancelledError):
        running.result()
