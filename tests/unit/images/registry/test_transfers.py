"""Transfers between the event loop and threads."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from serving.images.registry import transfers


async def downloaded() -> AsyncGenerator[bytes, None]:
    while True:
        yield b"chunk"
        await asyncio.sleep(0)


async def download(threads: ThreadPoolExecutor, consume: transfers.Consumer) -> None:
    await transfers.download(threads, downloaded(), consume)


async def local(threads: ThreadPoolExecutor, consume: transfers.Consumer) -> None:
    await transfers.local(threads, (b"chunk" for _ in range(1_000_000)), consume)


@pytest.mark.parametrize("transfer", [download, local])
async def test_transfer_ends_after_its_thread_when_it_is_cancelled_repeatedly(
    transfer: Callable[[ThreadPoolExecutor, transfers.Consumer], Coroutine[Any, Any, None]],
) -> None:
    begun, synced = threading.Event(), threading.Event()

    def consume(chunks: Iterable[bytes]) -> None:
        for _ in chunks:
            begun.set()
            synced.wait(5)  # an fsync, which no cancellation interrupts

    threads = ThreadPoolExecutor(1)
    task = asyncio.create_task(transfer(threads, consume))
    while not begun.is_set():
        await asyncio.sleep(0)
    # The end of the loop cancels every task, and a TaskGroup that aborts then cancels its own again.
    for _ in range(3):
        task.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
    is_early = task.done()
    synced.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_early
    threads.shutdown()
