"""A connection of the API server leaves nothing behind: the cycle collector of components runs rarely."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any, cast
from unittest import mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from serving.embedded.apiserver import connection as connections
from serving.embedded.apiserver.connection import (
    HEADER_BYTES,
    MOST_HEADERS,
    ApiConnection,
    ConnectionMemory,
    SilentConnections,
)

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


def opened() -> tuple[ApiConnection, ServerState]:
    config = uvicorn.Config(answer, lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    silent, memory = SilentConnections(), ConnectionMemory()
    connection = ApiConnection(silent, memory, config=config, server_state=state, app_state={})
    transport = mock.Mock(spec=asyncio.Transport)
    transport.get_extra_info.return_value = None
    transport.is_closing.return_value = False
    connection.connection_made(transport)
    return connection, state


@pytest.fixture(autouse=True)
def _no_cycle_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 401, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(
    "sent",
    [b"", REQUEST[:-2], REQUEST, 2 * REQUEST, 1000 * REQUEST],
    ids=["silent", "half a request", "answered", "pipelined", "a thousand pipelined"],
)
async def test_connection_is_freed_once_it_is_lost(sent: bytes) -> None:
    connection, state = opened()
    if sent:
        connection.data_received(sent)
    while state.tasks:
        await asyncio.sleep(0)
    connection.connection_lost(None)
    is_alive = weakref.ref(connection)
    del connection
    await asyncio.sleep(0)
    assert is_alive() is None


LONG = b"v" * (HEADER_BYTES + 1)
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        3 * REQUEST,
        b"GET /" + LONG + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        REQUEST[:-2] + b"a: " + LONG + b"\r\n\r\n",
        REQUEST[:-2] + (MOST_HEADERS + 1) * b"a:\r\n" + b"\r\n",
        CHUNKED + b"a: " + LONG + b"\r\n\r\n",
        CHUNKED + (MOST_HEADERS + 1) * b"a:\r\n" + b"\r\n",
    ],
    ids=["third request", "URL", "header", "headers", "trailer", "trailers"],
)
async def test_request_beyond_a_limit_ends_the_connection_when_it_comes_in_one_piece(sent: bytes) -> None:
    connection, state = opened()
    connection.data_received(sent)
    cast("mock.Mock", connection.transport).close.assert_called_once()
    while state.tasks:
        await asyncio.sleep(0)


async def test_trailer_without_end_ends_the_connection() -> None:
    connection, state = opened()
    connection.data_received(CHUNKED + b"a: ")
    connection.data_received(LONG)
    cast("mock.Mock", connection.transport).abort.assert_called_once()
    connection.connection_lost(ConnectionAbortedError())
    while state.tasks:
        await asyncio.sleep(0)


async def test_large_body_in_one_piece_with_its_headers_is_no_header() -> None:
    connection, state = opened()
    body = b"b" * (3 * HEADER_BYTES)
    connection.data_received(
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body + REQUEST
    )
    cast("mock.Mock", connection.transport).abort.assert_not_called()
    while state.tasks:
        await asyncio.sleep(0)


async def test_memory_is_returned_once_when_many_connections_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_TRIM_DELAY_SECONDS", 0.0)
    trims = []
    memory = ConnectionMemory(lambda: trims.append(1))
    for ends, expected in (
        (connections._ENDS_BEFORE_TRIM - 1, 0),
        (5, 1),
        (connections._ENDS_BEFORE_TRIM - 1, 1),
        (1, 2),
    ):
        for _ in range(ends):
            memory.add_end()
        await asyncio.sleep(0.01)
        assert len(trims) == expected
