"""A TCP server for peers of tests that speak by hand; its connections end with it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def tcp_server(
    answer: Answer, host: str = "127.0.0.1", port: int = 0, *, is_idle: Callable[[], bool] = lambda: True
) -> AsyncIterator[int]:
    """Serve each connection with `answer`, and close it at the end of `answer`; yield the port.

    At the end the server stops listening, waits until it is idle (one second at most), and closes the rest.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                await answer(reader, writer)
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, host, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while not is_idle():
                    await asyncio.sleep(0.005)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # closed transports end in the loop's next turn
