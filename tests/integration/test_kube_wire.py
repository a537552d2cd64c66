"""Requests over kept connections, against a server that answers as the test says."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from serving.kube.wire import Answer, Wire

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
Say = Callable[[asyncio.StreamWriter, int], Awaitable[None]]


class Server:
    """Reads whole requests; `say` answers the n-th of all."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.say: Say = self.fine
        self.port = 0

    @staticmethod
    async def fine(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(OK)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (line[16:] for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")), b"0"
                )
                self.requests.append(head + await reader.readexactly(int(length)))
                await self.say(writer, len(self.requests))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def wire(self, connections: int = 4) -> Wire:
        context = ssl.create_default_context()
        return Wire(f"http://127.0.0.1:{self.port}/base", context, connections=connections, server_name=None)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    listening = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield found


async def ask(wire: Wire, method: str = "GET", body: bytes = b"", seconds: float = 10.0) -> Answer:
    return await wire.request(method, "/api?a=b", {"Accept": "application/json"}, body, seconds)


async def test_a_connection_is_used_again_when_the_answer_was_whole(server: Server) -> None:
    wire = server.wire()
    for _ in range(3):
        assert await ask(wire, "POST", b"{1}") == Answer(200, b"{}")
    wire.close()
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /base/api?a=b HTTP/1.1\r\nHost: 127.0.0.1:")
    assert server.requests[0].endswith(b"\r\n\r\n{1}")


async def test_no_more_connections_are_made_than_allowed(server: Server) -> None:
    wire = server.wire(connections=2)
    await asyncio.gather(*(ask(wire) for _ in range(10)))
    wire.close()
    assert (server.connections, len(server.requests)) == (2, 10)


async def test_an_answer_in_pieces_and_after_a_provisional_one_is_read(server: Server) -> None:
    async def say(writer: asyncio.StreamWriter, _: int) -> None:
        pieces = (
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chun",
            b"ked\r\n\r\n",
        )
        for piece in (*pieces, b"1\r\n{\r\n", b"1\r\n}\r\n0\r\n\r\n"):
            writer.write(piece)
            await writer.drain()

    server.say = say
    wire = server.wire()
    assert await ask(wire) == Answer(409, b"{}")
    wire.close()


async def close_first_kept(writer: asyncio.StreamWriter, number: int) -> None:
    if number == 2:
        writer.close()
    else:
        writer.write(OK)


async def test_a_read_is_sent_again_when_a_kept_connection_was_closed(server: Server) -> None:
    server.say = close_first_kept
    wire = server.wire()
    assert [(await ask(wire)).status for _ in range(2)] == [200, 200]
    wire.close()
    assert (server.connections, len(server.requests)) == (2, 3)


async def test_a_write_that_may_have_been_done_is_not_sent_again(server: Server) -> None:
    server.say = close_first_kept
    wire = server.wire()
    await ask(wire)
    with pytest.raises(ConnectionError):
        await ask(wire, "POST", b"{}")
    assert len(server.requests) == 2
    assert (await ask(wire, "POST", b"{}")).status == 200, "the next one has a new connection"
    wire.close()


async def test_a_connection_is_not_used_again_when_the_server_says_so(server: Server) -> None:
    async def say(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    server.say = say
    wire = server.wire()
    await ask(wire)
    await ask(wire)
    assert server.connections == 2


async def test_an_answer_that_nobody_waits_for_any_longer_is_nobodys(server: Server) -> None:
    held = asyncio.Event()

    async def say(writer: asyncio.StreamWriter, number: int) -> None:
        if number == 1:
            await held.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst")
        else:
            writer.write(OK)

    server.say = say
    wire = server.wire(connections=1)
    with pytest.raises(TimeoutError):
        await ask(wire, seconds=0.1)
    held.set()
    assert await ask(wire) == Answer(200, b"{}")
    wire.close()


@pytest.mark.parametrize("said", [b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"])
async def test_what_is_no_whole_answer_is_an_error(server: Server, said: bytes) -> None:
    async def say(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(said)
        writer.close()

    server.say = say
    with pytest.raises(ConnectionError):
        await ask(server.wire(), "POST", b"{}")


async def test_nothing_can_be_smuggled_into_a_request(server: Server) -> None:
    wire = server.wire()
    for target, value in (("/a b", "x"), ("/a\r\nX: y", "x"), ("/a", "x\r\nX: y")):
        with pytest.raises(ValueError, match=r"target|line break"):
            await wire.request("GET", target, {"Accept": value}, b"", 1.0)
    assert not server.requests
