"""Transfers between the event loop, on which the client receives, and the threads in which the store unpacks
and hashes.

Nothing is buffered here (aiohttp does that), so memory does not grow if the disk is the slower side. When
`download` or `local` has ended, also by an error or a cancellation, its thread no longer uses the source.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from serving import errors

T = TypeVar("T")
Consumer = Callable[[Iterable[bytes]], None]
"""Reads chunks of bytes; runs in a thread."""


class _Download(Iterator[bytes]):
    """A download as an iterator that a thread reads while the event loop receives."""

    def __init__(self, source: AsyncGenerator[bytes, None]) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._reading: asyncio.Task[object] | None = None
        self._stopped = False

    def __next__(self) -> bytes:
        chunk = asyncio.run_coroutine_threadsafe(self._next(), self._loop).result()
        if self._stopped:
            raise _interrupted()
        if chunk is None:
            raise StopIteration
        return chunk

    async def _next(self) -> bytes | None:
        if self._stopped:
            return None
        self._reading = asyncio.current_task()
        try:
            return await anext(self._source, None)
        except asyncio.CancelledError:
            self._stopped = True
            return None

    async def stop(self) -> None:
        """Make the thread's present or next read fail at once, even if the peer is silent."""
        self._stopped = True
        try:
            if self._reading is not None and not self._reading.done():
                self._reading.cancel()
                await _done(self._reading)
        finally:
            await self._source.aclose()


async def download(
    threads: ThreadPoolExecutor, source: AsyncGenerator[bytes, None], consume: Consumer
) -> None:
    """Run `consume` in a thread over a download; errors of either are raised here.

    Args:
        threads: has a thread for each concurrent call.
        source: the download; closed at the end.
        consume: reads the bytes.
    """
    chunks = _Download(source)
    work = asyncio.get_running_loop().run_in_executor(threads, consume, chunks)
    try:
        await asyncio.shield(work)
    finally:
        try:
            await chunks.stop()
        finally:
            await _ended(work)


async def local(threads: ThreadPoolExecutor, chunks: Iterable[bytes], consume: Consumer) -> None:
    """Run `consume` in a thread over chunks from this machine's disk; arguments as those of `download`."""
    stopped = threading.Event()

    def guarded() -> Iterator[bytes]:
        for chunk in chunks:
            if stopped.is_set():
                raise _interrupted()
            yield chunk

    work = asyncio.get_running_loop().run_in_executor(threads, consume, guarded())
    try:
        await asyncio.shield(work)
    finally:
        stopped.set()
        await _ended(work)


async def _ended(work: asyncio.Future[None]) -> None:
    """Wait for the thread, and read its error: asyncio logs an error that nobody has read."""
    try:
        await _done(work)
    finally:
        work.exception()


async def _done(future: asyncio.Future[Any]) -> None:
    """Wait until a future is done, although this task is cancelled meanwhile; then raise the cancellation.

    The end of an event loop cancels every task, and a TaskGroup then cancels its own once more.
    """
    cancellation: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation


def _interrupted() -> errors.Temporary:
    return errors.Temporary("Interrupted", "the pull was cancelled")


async def in_parallel(limit: int, work: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    """Await the work on each item, at most `limit` at a time; the first error cancels the others.

    Raises:
        errors.SlipwayError: the first error.
    """
    slots = asyncio.Semaphore(limit)

    async def run(item: T) -> None:
        async with slots:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(run(item))
    except ExceptionGroup as group_error:
        expected_errors, _ = group_error.split(errors.SlipwayError)
        first = _leaf(expected_errors or group_error)
        raise first from first.__cause__  # keeps its cause, and does not show the group as its context


def _leaf(error: Exception) -> Exception:
    """Return the first error in a group of errors, which may be nested."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
