import asyncio
import socket
from typing import Any

import pytest
import uvicorn

from serving.system.network.asgi_server import AsgiServer
from serving.system.network.listener import Listener


async def test_server_does_not_wake_between_its_start_and_its_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = 0

    async def counted(server: AsgiServer, counter: int) -> bool:
        nonlocal ticks
        ticks += 1
        return False

    async def application(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nobody asks")

    monkeypatch.setattr(AsgiServer, "on_tick", counted)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = AsgiServer(uvicorn.Config(application, lifespan="off", log_config=None, date_header=False))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await asyncio.sleep(0.35)
        assert server.started
        assert ticks == 1
        server.stop()
        await asyncio.wait_for(serving, 5)


async def test_connection_that_is_accepted_as_the_server_stops_does_not_hold_it_up() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nobody asks")

    config = uvicorn.Config(
        application, lifespan="off", log_config=None, date_header=False, timeout_graceful_shutdown=60
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = AsgiServer(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0)
        with socket.create_connection(listening.getsockname()):
            (listener,) = server.servers
            assert isinstance(listener, Listener)
            listener._accept()
            server.stop()
            await asyncio.wait_for(serving, 10)
