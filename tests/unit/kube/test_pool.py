"""The ends of TLS connections, at an API server that hangs after its answer."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest
import uvloop

from serving import clock
from serving.embedded.apiserver import certificates
from serving.kube.connection.client import Kube
from serving.kube.connection.kubernetes_aio import Configuration
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
