"""Bytes that a thread uses: the store unpacks and hashes in threads, the client receives on the event loop.

Nothing is read ahead here (aiohttp's buffer does that), so memory does not grow when the disk is the slower
one. When `download` or `local` has ended, however it did, its thread uses nothing of it any more.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from serving import errors

Use = Callable[[Iterable[bytes]], None]


class _Arriving(Iterator[bytes]):
    """A download as the thread sees it."""

    def __init__(self, source: AsyncGenerator[bytes, None]) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._reading: asyncio.Task[object] | None = None
        self._stopped = False

    def __next__(self) -> bytes:
        piece = asyncio.run_coroutine_threadsafe(self._next(), self._loop).result()
        if self._stopped:
            raise _interrupted()
        if piece is None:
            raise StopIteration
        return piece

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
        """Let the thread's reading fail, at once even where the peer is silent."""
        self._stopped = True
        if self._reading is not None and not self._reading.done():
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._source.aclose()


async def download(threads: ThreadPoolExecutor, source: AsyncGenerator[bytes, None], use: Use) -> None:
    """Run `use` in a thread over what arrives; what either raises is raised here.

    Args:
        threads: has a place for each call at once.
        source: the download; closed at the end.
        use: reads the bytes.
    """
    arriving = _Arriving(source)
    work = asyncio.get_running_loop().run_in_executor(threads, use, arriving)
    try:
        await asyncio.shield(work)
    finally:
        await arriving.stop()
        await asyncio.wait([work])


async def local(threads: ThreadPoolExecutor, chunks: Iterable[bytes], use: Use) -> None:
    """Run `use` in a thread over what lies on this machine's disk; arguments as for `download`."""
    stopped = threading.Event()

    def guarded() -> Iterator[bytes]:
        for chunk in chunks:
            if stopped.is_set():
                raise _interrupted()
            yield chunk

    work = asyncio.get_running_loop().run_in_executor(threads, use, guarded())
    try:
        await asyncio.shield(work)
    finally:
        stopped.set()
        await asyncio.wait([work])


def _interrupted() -> errors.Temporary:
    return errors.Temporary("Interrupted", "the pull was given up")
