"""A connection of the API server leaves nothing behind: the cycle collector of components runs rarely."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from serving.embedded.apiserver.connection import ApiConnection, SilentConnections


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
    [b"", b"GET / HTTP/1.1\r\nhost: x\r\n", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"],
    ids=["silent", "half a request", "answered"],
)
async def test_connection_is_freed_once_it_is_lost(sent: bytes) -> None:
    config = uvicorn.Config(answer, lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    connection = ApiConnection(SilentConnections(), config=config, server_state=state, app_state={})
    transport = mock.Mock(spec=asyncio.Transport)
    transport.get_extra_info.return_value = None
    connection.connection_made(transport)
    if sent:
        connection.data_received(sent)
    while state.tasks:
        await asyncio.sleep(0)
    connection.connection_lost(None)
    is_alive = weakref.ref(connection)
    del connection
    transport.reset_mock()
    await asyncio.sleep(0)
    assert is_alive() is None
