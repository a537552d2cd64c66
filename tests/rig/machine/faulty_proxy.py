"""A TCP proxy that cuts, slows or changes the bytes between a client and a registry."""

import asyncio
from dataclasses import dataclass


@dataclass
class Faults:
    """The faults of connections from now on; counts are bytes of one direction of one connection."""

    cut_requests_after: int | None = None
    cut_answers_after: int | None = None
    cuts: int = 0
    """The number of connections that are cut."""
    change_answer_byte: int | None = None
    """Offset, head included, of the byte of a response that the proxy changes."""
    answer_bytes_per_second: float | None = None
    slow_after: int = 0
    """Bytes of a connection's responses that pass at full speed before the slow ones."""
    hang_after: int | None = None
    """Bytes of a connection's responses after which the connection hangs."""
    silent: bool = False
    """Whether connections are accepted and never answered."""


class FaultyProxy:
    """`async with FaultyProxy(port) as proxy` forwards connections of `proxy.host` to 127.0.0.1:port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.faults = Faults()
        self.connections = 0
        self.requests_bytes = 0
        self.answers_bytes = 0
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "FaultyProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.host = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.connections += 1
        try:
            if self.faults.silent:
                await asyncio.Event().wait()
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._port)
            directions = [
                asyncio.ensure_future(self._requests(reader, upstream_writer)),
                asyncio.ensure_future(self._answers(upstream_reader, writer)),
            ]
            try:
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            finally:
                upstream_writer.transport.abort()
                for direction in directions:
                    direction.cancel()
                await asyncio.gather(*directions, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    def _cut(self, seen: int, after: int | None) -> bool:
        if after is None or seen < after or self.faults.cuts <= 0:
            return False
        self.faults.cuts -= 1
        return True

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = 0
        while data := await reader.read(65536):
            seen += len(data)
            self.requests_bytes += len(data)
            writer.write(data)
            await writer.drain()
            if self._cut(seen, self.faults.cut_requests_after):
                return

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = 0
        while data := await reader.read(65536):
            at = self.faults.change_answer_byte
            if at is not None and seen <= at < seen + len(data):
                data = data[: at - seen] + bytes([data[at - seen] ^ 1]) + data[at - seen + 1 :]
            seen += len(data)
            self.answers_bytes += len(data)
            if self.faults.hang_after is not None and seen > self.faults.hang_after:
                await asyncio.Event().wait()
            await self._write(writer, data, slow=seen > self.faults.slow_after)
            if self._cut(seen, self.faults.cut_answers_after):
                writer.close()  # a reset would discard bytes that the client has not read
                await writer.wait_closed()
                return

    async def _write(self, writer: asyncio.StreamWriter, data: bytes, *, slow: bool) -> None:
        speed = self.faults.answer_bytes_per_second if slow else None
        step = len(data) if speed is None else max(1, int(speed / 20))
        for start in range(0, len(data), step):
            writer.write(data[start : start + step])
            await writer.drain()
            if speed is not None:
                await asyncio.sleep(1 / 20)  # the speed is the fault
