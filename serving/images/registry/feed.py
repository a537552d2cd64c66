"""A download that a thread reads: the store unpacks and hashes in threads, the client receives on the event loop.

Nothing is read ahead here (aiohttp's buffer does that), so memory does not grow when the disk is the slower one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor

from serving import errors


class _Feed(Iterator[bytes]):
    def __init__(self, source: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._source = source
        self._loop = loop
        self._stopped = False

    def __next__(self) -> bytes:
        piece = None if self._stopped else self._wait()
        if self._stopped:
            raise errors.Temporary("Interrupted", "the download was given up")
        if piece is None:
            raise StopIteration
        return piece

    def _wait(self) -> bytes | None:
        future = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
        try:
            return future.result()
        except CancelledError:
            self._stopped = True
            return None

    async def _next(self) -> bytes | None:
        return await anext(self._source, None)

    def stop(self) -> None:
        """Let the thread's next reading fail."""
        self._stopped = True


async def consume(
    threads: ThreadPoolExecutor, source: AsyncIterator[bytes], use: Callable[[Iterable[bytes]], None]
) -> None:
    """Run `use` in a thread over what arrives; when this returns or raises, the thread is done with it.

    Args:
        threads: has a place for each `consume` at once.
        source: the download.
        use: reads the bytes; what it raises is raised here.
    """
    loop = asyncio.get_running_loop()
    feed = _Feed(source, loop)
    work = loop.run_in_executor(threads, use, feed)
    try:
        await asyncio.shield(work)
    finally:
        feed.stop()
        await asyncio.wait([work])
