"""A listener accepts all connections that wait, and goes on after exhausted descriptors."""

import asyncio
import contextlib
import errno
import os
import socket
from typing import Any

import pytest

from serving.system.network import listener as module
from serving.system.network.listener import Listener

CLIENTS = 50


class Counted(asyncio.Protocol):
    """Counts its connections, and closes them at once."""

    made: int = 0
    lost: int = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        type(self).made += 1
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        type(self).lost += 1


async def until_lost(counted: type[Counted], count: int) -> None:
    async with asyncio.timeout(10):
        while counted.lost < count:
            await asyncio.sleep(0.005)


@pytest.fixture
def counted() -> type[Counted]:
    return type("CountedHere", (Counted,), {})


async def test_waiting_connections_are_accepted_in_one_turn_of_the_loop(counted: type[Counted]) -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=CLIENTS) as listening,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(CLIENTS):
            stack.enter_context(socket.create_connection(listening.getsockname()))
        listener = Listener(listening, counted, CLIENTS)
        turns = 0
        while counted.made < CLIENTS:
            turns += 1
            await asyncio.sleep(0)
        listener.close()
        await listener.wait_closed()
        await until_lost(counted, CLIENTS)
    assert turns < CLIENTS / 5


class Exhausted:
    """A listening socket, of which the first connection finds no descriptor."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.failures = 1

    def accept(self) -> Any:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._listening.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listening, name)


async def test_connections_are_accepted_again_when_there_was_no_descriptor(
    counted: type[Counted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        exhausted = Exhausted(listening)
        listener = Listener(exhausted, counted, CLIENTS)  # type: ignore[arg-type] as far as a listener uses a socket
        with socket.create_connection(listening.getsockname()):
            await until_lost(counted, 1)
        listener.close()
        await listener.wait_closed()
    assert not exhausted.failures


async def test_closed_listener_accepts_nothing(counted: type[Counted]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listener = Listener(listening, counted, CLIENTS)
        listener.close()
        with socket.create_connection(listening.getsockname()):
            await asyncio.sleep(0.05)
        await listener.wait_closed()
    assert not counted.made
