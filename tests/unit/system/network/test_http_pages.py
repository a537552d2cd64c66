"""The server of read-only pages, over real connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from serving import errors
from serving.system.network import http_pages
from serving.system.network.http_pages import PageAnswer

pytestmark = pytest.mark.timeout(30)
LARGE = b"x" * 20_000_000


async def page() -> PageAnswer:
    return PageAnswer(b"ready\n", content_type="text/plain; version=1")


async def large() -> PageAnswer:
    return PageAnswer(LARGE)


async def unavailable() -> PageAnswer:
    raise errors.Unavailable("Envoy does not answer")


async def broken() -> PageAnswer:
    raise KeyError("a bug")


PAGES = {"/page": page, "/large": large, "/unavailable": unavailable, "/broken": broken}


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with http_pages.serving(PAGES, "127.0.0.1", 0) as bound:
        yield bound


async def answer(port: int, request: bytes) -> bytes:
    """Send these bytes; return all bytes until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


def status(response: bytes) -> int:
    return int(response.split(b" ")[1])


async def test_page_has_its_body_and_type_and_the_connection_is_closed(port: int) -> None:
    assert await answer(port, b"GET /page?verbose HTTP/1.1\r\nHost: a\r\n\r\n") == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=1\r\nContent-Length: 6\r\n"
        b"Connection: close\r\n\r\nready\n"
    )


async def test_head_has_the_headers_of_get_and_no_body(port: int) -> None:
    whole = await answer(port, b"GET /page HTTP/1.1\r\n\r\n")
    assert await answer(port, b"HEAD /page HTTP/1.1\r\n\r\n") == whole.removesuffix(b"ready\n")


@pytest.mark.parametrize(
    ("request_line", "expected", "text"),
    [
        ("GET / HTTP/1.1", HTTPStatus.NOT_FOUND, b"GET /page\n"),
        ("GET /page/ HTTP/1.1", HTTPStatus.NOT_FOUND, b""),
        ("POST /page HTTP/1.1", HTTPStatus.METHOD_NOT_ALLOWED, b"Allow: GET, HEAD\r\n"),
        ("GET /unavailable HTTP/1.0", HTTPStatus.SERVICE_UNAVAILABLE, b"Envoy does not answer\n"),
        ("GET /broken HTTP/1.1", HTTPStatus.INTERNAL_SERVER_ERROR, b""),
        ("GET", HTTPStatus.BAD_REQUEST, b""),
        ("\x16\x03\x01 \xff HTTP/1.1", HTTPStatus.BAD_REQUEST, b""),
        ("GET /page SIP/2.0", HTTPStatus.BAD_REQUEST, b""),
    ],
)
async def test_request_is_refused_when_it_is_none_for_a_page(
    port: int, request_line: str, expected: HTTPStatus, text: bytes
) -> None:
    response = await answer(port, request_line.encode("latin-1") + b"\r\n\r\n")
    assert status(response) == expected
    assert text in response


async def test_request_is_refused_when_its_headers_are_too_long(port: int) -> None:
    response = await answer(port, b"GET /page HTTP/1.1\r\n" + b"x" * 2 * http_pages.HEAD_BYTES)
    assert status(response) == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


async def test_connection_is_closed_when_half_a_request_arrives(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_pages, "REQUEST_SECONDS", 0.1)
    assert await answer(port, b"GET /page HTTP/1.1\r\nHost:") == b""


async def test_connection_is_closed_when_the_answer_is_not_read(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_pages, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(http_pages, "CONNECTIONS", 1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(b"GET /large HTTP/1.1\r\n\r\n")
    await reader.readline()
    response = b""
    async with asyncio.timeout(10):
        while not response:
            with contextlib.suppress(ConnectionResetError):  # refused while the first is open
                response = await answer(port, b"HEAD /page HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.01)
    writer.close()


async def test_large_page_arrives_whole(port: int) -> None:
    response = await answer(port, b"GET /large HTTP/1.1\r\n\r\n")
    assert response.partition(b"\r\n\r\n")[2] == LARGE


async def test_oldest_connection_is_closed_and_a_new_one_answered_when_there_are_too_many(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_pages, "CONNECTIONS", 1)
    reader, first = await asyncio.open_connection("127.0.0.1", port)
    first.write(b"GET ")
    await first.drain()
    async with asyncio.timeout(http_pages.REQUEST_SECONDS / 2):
        assert status(await answer(port, b"GET /page HTTP/1.1\r\n\r\n")) == HTTPStatus.OK
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    first.close()


async def test_oldest_unread_answer_is_closed_when_answers_take_too_much_memory(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_pages, "ANSWERS_BYTES", 2 * len(LARGE))

    async def unread(request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(request)
        return reader, writer

    get = b"GET /large HTTP/1.1\r\n\r\n"
    _, asking = await unread(b"HEAD /page HTTP/1.1\r\n")
    clients = [await unread(get) for _ in range(2)]
    for reader, _ in clients:
        assert status(await reader.readline()) == HTTPStatus.OK
    async with asyncio.timeout(http_pages.REQUEST_SECONDS / 2):
        assert len(await answer(port, get)) > len(LARGE)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await clients[0][0].readexactly(len(LARGE))
        assert len(await clients[1][0].readexactly(len(LARGE))) == len(LARGE)
    for writer in (asking, *(writer for _, writer in clients)):
        writer.transport.abort()


async def test_probes_are_answered_while_clients_hold_and_renew_all_connections(port: int) -> None:
    async def hold() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(b"GET ")
                    await reader.read()
                finally:
                    writer.transport.abort()

    holders = [asyncio.create_task(hold()) for _ in range(2 * http_pages.CONNECTIONS)]
    try:
        for _ in range(50):
            assert status(await answer(port, b"GET /page HTTP/1.1\r\n\r\n")) == HTTPStatus.OK
    finally:
        for holder in holders:
            holder.cancel()
        await asyncio.gather(*holders, return_exceptions=True)


async def test_server_ends_at_once_when_a_client_keeps_a_connection() -> None:
    async with asyncio.timeout(http_pages.REQUEST_SECONDS / 2):
        async with http_pages.serving(PAGES, "127.0.0.1", 0) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET")
            await writer.drain()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def test_pages_are_served_on_an_ipv6_address() -> None:
    async with http_pages.serving(PAGES, "::1", 0) as port:
        reader, writer = await asyncio.open_connection("::1", port)
        writer.write(b"GET /page HTTP/1.1\r\n\r\n")
        assert status(await reader.read()) == HTTPStatus.OK
        writer.close()
