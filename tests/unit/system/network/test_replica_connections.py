"""A tunnel is one connection to a replica, in both directions, and leaves nothing behind."""

import asyncio
import socket
from pathlib import Path

import pytest

from serving.system.network import replica_connections, sockets
from tests.rig.machine.tcp_server import tcp_server

HOST = "127.0.0.1"
LARGE = bytes(range(256)) * 20_000


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back what arrives, and end after it has ended."""
    while piece := await reader.read(65_536):
        writer.write(piece)
        await writer.drain()


async def test_all_bytes_and_the_end_pass_both_ways(tmp_path: Path) -> None:
    folder = tmp_path / "absent"
    async with tcp_server(echo) as port, replica_connections.tunnel(folder, HOST, port) as path:
        assert folder.stat().st_mode & 0o777 == 0o700
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(LARGE)
        writer.write_eof()
        assert await reader.read() == LARGE
        assert is_empty(folder), "the socket is for one connection"
        writer.close()


async def test_end_of_the_replica_ends_the_clients_connection(tmp_path: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)

    async with tcp_server(refuse) as port, replica_connections.tunnel(tmp_path, HOST, port) as path:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"xy")
        assert await reader.read() == b""
        writer.close()


async def test_end_of_the_tunnel_ends_both_connections(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def wait_for_end(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()
        ended.set()

    async with tcp_server(wait_for_end) as port:
        async with replica_connections.tunnel(tmp_path, HOST, port) as path:
            reader, writer = await asyncio.open_unix_connection(path)
        assert await reader.read() == b""
        writer.close()
        async with asyncio.timeout(5):
            await ended.wait()


async def test_replica_that_does_not_listen_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefusedError):
        async with replica_connections.tunnel(tmp_path, HOST, sockets.try_port(HOST, 0)):
            pass
    assert is_empty(tmp_path)


async def test_socket_of_a_killed_process_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_connections, "_numbers", iter([0]))
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "tunnel-0"))
    async with tcp_server(echo) as port, replica_connections.tunnel(tmp_path, HOST, port) as path:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()


def mark_of(address: str) -> int:
    family = sockets.family(address)
    with replica_connections.new_socket((family, socket.SOCK_STREAM, 0, "", (address, 1))) as made:
        return made.getsockopt(socket.SOL_SOCKET, socket.SO_MARK)


@pytest.mark.skipif(not sockets.can_mark(), reason="needs CAP_NET_ADMIN or CAP_NET_RAW")
def test_connections_to_replicas_of_this_machine_are_marked_and_no_others() -> None:
    assert [mark_of(address) for address in ("127.77.0.2", "::1")] == [sockets.GATEWAY_MARK] * 2
    assert [mark_of(address) for address in ("10.0.0.2", "fd00::2")] == [0, 0]


async def test_connection_is_made_without_a_mark_where_none_can_be_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "can_mark", lambda: False)
    async with tcp_server(echo) as port:
        with await replica_connections.connect(HOST, port) as made:
            assert made.getsockopt(socket.SOL_SOCKET, socket.SO_MARK) == 0
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(made, b"x")
            assert await loop.sock_recv(made, 1) == b"x"
