"""Ends a benchmark's child processes at SIGINT and SIGTERM: `slipway up`, Envoy, load generators."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run this work to its end; the first SIGINT or SIGTERM cancels it, and no further one stops its cleanup.

    Raises:
        SystemExit: after a signal, with 128 + its number, as a shell reports it.
    """
    received: list[int] = []

    async def until_signal() -> Result:
        task = asyncio.ensure_future(work)

        def stop(number: int) -> None:
            if not received:
                print("interrupted: ending the child processes", file=sys.stderr, flush=True)
                received.append(number)
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        return await task

    try:
        return asyncio.run(until_signal())
    except asyncio.CancelledError:
        if not received:
            raise
        sys.exit(128 + received[0])
