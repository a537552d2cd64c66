"""The ends of connections, at an API server that hangs after its answer or vanishes."""

import asyncio
import contextlib
import ctypes
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest
import uvloop

from serving import clock, errors
from serving.embedded.apiserver import certificates
from serving.kube.connection import pool
from serving.kube.connection.client import Kube
from serving.kube.connection.kubernetes_aio import Configuration
from serving.resources import kinds
from serving.settings import DEFAULTS
from tests.rig import leaks

SECONDS = 15.0
"""Longest wait for the end of a connection: half of the 30 s that TLS waits for the server's close_notify."""
OK = b"HTTP/1.1 200 OK\r\n"


@dataclass
class HungServer:
    """Answers one request with `answer`, and reads no TLS any more."""

    answer: bytes
    context: ssl.SSLContext
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    answered: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def serve(self) -> None:
        accepted, _ = self.listener.accept()
        with self.context.wrap_socket(accepted, server_side=True) as connection:
            connection.recv(65536)
            connection.sendall(self.answer)
            self.answered.set()
            connection.settimeout(SECONDS)
            with contextlib.suppress(ConnectionResetError):
                while socket.socket.recv(connection, 65536):
                    pass
            self.ended.set()


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    directory = tmp_path_factory.mktemp("certificates")
    certificates.ensure(directory, "127.0.0.1", DEFAULTS.api, clock.now())
    issued = certificates.files(directory)
    loaded = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    loaded.load_cert_chain(issued.certificate, issued.key)
    return loaded


@pytest.fixture(scope="module", autouse=True)
def _pipe_of_libuv() -> None:
    """Open the pipe that libuv keeps with the first event loop of a process: no test leaves it behind."""
    with leaks.shared():
        uvloop.new_event_loop().close()


@contextlib.contextmanager
def hung_server(context: ssl.SSLContext, answer: bytes) -> Iterator[HungServer]:
    server = HungServer(answer, context)
    thread = threading.Thread(target=server.serve)
    thread.start()
    with server.listener:
        yield server
        thread.join()


async def request(kube: Kube, server: HungServer) -> None:
    assert await kube.raw("/version") == b"{}"


async def cancelled_request(kube: Kube, server: HungServer) -> None:
    task = asyncio.create_task(kube.raw("/version"))
    assert await asyncio.to_thread(server.answered.wait, SECONDS)
    task.cancel()
    await asyncio.wait([task])


async def cancelled_watch(kube: Kube, server: HungServer) -> None:
    stream = kube.stream("/logs")
    assert await anext(stream) == b"{}"
    await stream.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(
    ("answer", "use"),
    [
        pytest.param(OK + b"Content-Length: 2\r\n\r\n{}", request, id="kept"),
        pytest.param(OK + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}", request, id="not kept"),
        pytest.param(b"", cancelled_request, id="cancelled before its response"),
        pytest.param(OK + b"Content-Length: 9\r\n\r\n{}", cancelled_request, id="cancelled in its response"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", cancelled_watch, id="watch"),
    ],
)
def test_connection_ends_with_its_client_when_the_server_hangs(
    context: ssl.SSLContext,
    answer: bytes,
    use: Callable[[Kube, HungServer], Awaitable[None]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with hung_server(context, answer) as server, asyncio.Runner(loop_factory=loop_factory) as runner:
        configuration = Configuration(host=f"https://127.0.0.1:{server.listener.getsockname()[1]}")
        configuration.verify_ssl = False

        async def client() -> bool:
            async with Kube(configuration, field_manager="test") as kube:
                await use(kube, server)
            return await asyncio.to_thread(server.ended.wait, SECONDS)

        assert runner.run(client())


SO_ATTACH_FILTER = 26
"""<asm-generic/socket.h>; Python's module lacks it."""
WATCH = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def drop_incoming_packets(connection: socket.socket) -> None:
    """Make the kernel drop what arrives, without FIN or RST, as where the machine has lost its power."""
    return_zero = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0), 8)  # struct sock_filter
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(return_zero))  # struct sock_fprog
    connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


@contextlib.contextmanager
def vanishing_server(context: ssl.SSLContext | None) -> Iterator[int]:
    """Answer a watch, then drop all packets of its connection; yield the port."""
    ended = threading.Event()

    def serve() -> None:
        accepted, _ = listener.accept()
        connection = accepted if context is None else context.wrap_socket(accepted, server_side=True)
        with connection:
            connection.recv(65536)
            connection.sendall(WATCH)
            drop_incoming_packets(connection)
            ended.wait(SECONDS)

    thread = threading.Thread(target=serve)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread.start()
        yield listener.getsockname()[1]
        ended.set()
        thread.join()


@pytest.mark.skipif(sys.platform != "linux", reason="the times of other systems are left alone")
@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_watch_ends_when_the_server_vanishes(
    context: ssl.SSLContext,
    scheme: str,
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "SILENT_SECONDS", 1)
    monkeypatch.setattr(pool, "PROBE_PAUSE_SECONDS", 1)
    monkeypatch.setattr(pool, "MOST_PROBES", 1)
    monkeypatch.setattr(pool, "UNACKNOWLEDGED_MS", 2000)

    async def watch(port: int) -> None:
        configuration = Configuration(host=f"{scheme}://127.0.0.1:{port}")
        configuration.verify_ssl = False
        async with Kube(configuration, field_manager="test") as kube, asyncio.timeout(SECONDS):
            await anext(kube.watch(kinds.POD, None, "1"))

    with (
        vanishing_server(context if scheme == "https" else None) as port,
        asyncio.Runner(loop_factory=loop_factory) as runner,
        pytest.raises(errors.Unavailable),
    ):
        runner.run(watch(port))


@pytest.mark.skipif(sys.platform != "linux", reason="the times of other systems are left alone")
def test_connection_ends_within_half_a_minute_when_its_peer_vanishes() -> None:
    address = (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("::1", 1))
    with pool._probed_socket(address) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        silent, pause, probes, unacknowledged = (
            made.getsockopt(socket.IPPROTO_TCP, option)
            for option in (
                socket.TCP_KEEPIDLE,
                socket.TCP_KEEPINTVL,
                socket.TCP_KEEPCNT,
                socket.TCP_USER_TIMEOUT,
            )
        )
    assert silent + probes * pause == 30
    assert unacknowledged == 30_000
