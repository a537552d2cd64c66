"""What a client without the token can hold of the server: connections, memory and time."""

import contextlib
import http.client
import resource
import socket
import ssl
import time
from collections.abc import Iterator

import psutil
import pytest

from serving.embedded.apiserver.connection import (
    FIRST_REQUEST_SECONDS,
    HEADER_BYTES,
    MOST_HEADERS,
    MOST_SILENT,
)
from serving.system.network.tls_listener import MOST_HANDSHAKES
from tests.rig.servers.api_process import ApiProcess

CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
CONTEXT.check_hostname, CONTEXT.verify_mode = False, ssl.CERT_NONE
CLOSED_SECONDS = 3 * FIRST_REQUEST_SECONDS
REQUEST = b"GET /api/v1/pods HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    """Let the clients have as many descriptors as they need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def connection(server: ApiProcess) -> Iterator[ssl.SSLSocket]:
    """A connection of a client that trusts any server, and has no token."""
    address = ("127.0.0.1", server.settings.port)
    with (
        socket.create_connection(address, timeout=CLOSED_SECONDS) as plain,
        CONTEXT.wrap_socket(plain) as encrypted,
    ):
        yield encrypted


def is_closed(client: ssl.SSLSocket) -> bool:
    """Read until the server closes the connection."""
    try:
        while client.recv(65_536):
            pass
    except (ConnectionError, ssl.SSLError):
        return True
    except TimeoutError:
        return False
    return True


def test_connection_without_a_handshake_is_closed(api_process: ApiProcess) -> None:
    with socket.create_connection(("127.0.0.1", api_process.settings.port), timeout=30) as silent:
        assert silent.recv(1) == b""


def test_connection_without_a_whole_request_is_closed(api_process: ApiProcess) -> None:
    with connection(api_process) as silent, connection(api_process) as half:
        half.sendall(REQUEST)
        assert is_closed(silent)
        assert is_closed(half)


@pytest.mark.parametrize("path", ["/api/v1/pods", "/healthz"])
def test_connection_of_a_request_without_the_token_is_closed_after_the_answer(
    api_process: ApiProcess, path: str
) -> None:
    with connection(api_process) as client:
        client.sendall(b"POST " + path.encode() + b" HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf")
        assert is_closed(client)


@pytest.mark.parametrize(
    "line", [b"x" * 1024, b"x-header: " + b"v" * 1000 + b"\r\n", b"a:\r\n"], ids=["one", "many", "small"]
)
def test_headers_without_end_are_cut_off(api_process: ApiProcess, line: bytes) -> None:
    with connection(api_process) as client:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            client.sendall(REQUEST + line * (64 * HEADER_BYTES // len(line)))
        assert is_closed(client)


def test_headers_below_the_limit_are_answered_in_any_number_of_pieces(api_process: ApiProcess) -> None:
    with connection(api_process) as client:
        client.sendall(REQUEST)
        for _ in range(MOST_HEADERS // 2):
            client.sendall(b"x-header: " + b"v" * 1000 + b"\r\n")
        client.sendall(b"\r\n")
        assert client.recv(65_536).startswith(b"HTTP/1.1 401")


def test_clients_are_served_beside_connections_that_send_nothing(server: ApiProcess) -> None:
    with contextlib.ExitStack() as stack, server.http() as early:
        assert early.get("/api/v1/pods").status_code == 200
        silent = [stack.enter_context(connection(server)) for _ in range(MOST_SILENT + 200)]
        began = time.monotonic()
        with server.http() as late:
            assert late.get("/api/v1/pods").status_code == 200
        assert early.get("/api/v1/pods").status_code == 200
        assert time.monotonic() - began < 2
        assert server.process is not None
        assert psutil.Process(server.process.pid).num_fds() < MOST_SILENT + 100
        assert is_closed(silent[0])


def test_clients_are_served_beside_unfinished_handshakes(server: ApiProcess) -> None:
    address = ("127.0.0.1", server.settings.port)
    with contextlib.ExitStack() as stack:
        for _ in range(3 * MOST_HANDSHAKES):
            stack.enter_context(socket.create_connection(address)).sendall(b"\x16\x03\x01\x02\x00\x01")
        began = time.monotonic()
        with server.http() as client:
            assert client.get("/api/v1/pods").status_code == 200
        assert time.monotonic() - began < 2
        assert server.process is not None
        assert psutil.Process(server.process.pid).num_fds() < MOST_HANDSHAKES + 100


def test_malformed_requests_of_strangers_write_no_log(server: ApiProcess) -> None:
    for _ in range(3):
        with connection(server) as client:
            client.sendall(b"\0\0\0\r\n\r\n")
            assert is_closed(client)
    assert "Invalid" not in server.log.read_text()


def test_idle_connection_of_a_client_with_the_token_stays_open(api_process: ApiProcess) -> None:
    token = api_process.data_dir.token.read_bytes().strip()
    request = REQUEST + b"authorization: Bearer " + token + b"\r\n\r\n"
    with connection(api_process) as client:

        def answer() -> int:
            client.sendall(request)
            response = http.client.HTTPResponse(client)
            response.begin()
            response.read()
            return response.status

        assert answer() == 200
        client.settimeout(FIRST_REQUEST_SECONDS + 1)
        with pytest.raises(TimeoutError):
            client.recv(65_536)
        assert answer() == 200
