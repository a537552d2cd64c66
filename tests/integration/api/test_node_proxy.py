"""The requests of the API server to the node agent's port, where something else listens."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.apiserver.nodes import node_proxy
from serving.embedded.apiserver.nodes.node_proxy import NodeProxy


@asynccontextmanager
async def listening(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Answer every request at a port so; yield the port, and the requests as they come."""
    requests: list[bytes] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], requests


def proxy_to(path: Path, note: object) -> NodeProxy:
    data_dir = DataDir(path)
    data_dir.metrics("node").parent.mkdir(parents=True, exist_ok=True)
    data_dir.metrics("node").write_bytes(orjson.dumps(note))
    return NodeProxy(data_dir, "local")


async def test_redirect_is_a_503_and_is_not_followed(tmp_path: Path) -> None:
    async with listening(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno") as (target, followed):
        redirect = f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{target}/\r\nContent-Length: 0\r\n\r\n"
        async with listening(redirect.encode()) as (port, requests):
            with pytest.raises(errors.ApiError) as refused:
                await proxy_to(tmp_path, {"port": port}).metrics()
            assert await proxy_to(tmp_path, {"port": port}).trouble() == ""
    assert refused.value.code == 503
    assert len(requests) == 2
    assert not followed


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nshort",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a number\r\n",
    ],
    ids=["nothing", "another protocol", "cut", "long line", "bad chunk"],
)
async def test_malformed_answer_is_a_503_and_trouble(tmp_path: Path, answer: bytes) -> None:
    async with listening(answer) as (port, _):
        proxy = proxy_to(tmp_path, {"port": port})
        with pytest.raises(errors.ApiError) as refused:
            await proxy.metrics()
        assert refused.value.code == 503
        assert await proxy.trouble()


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"],
    ids=["head", "body"],
)
async def test_answer_byte_by_byte_is_a_503_and_trouble_after_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                writer.write(b"a")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()

    monkeypatch.setattr(node_proxy, "METRICS_SECONDS", 0.2)
    monkeypatch.setattr(node_proxy, "ALIVE_SECONDS", 0.2)
    server = await asyncio.start_server(dribble, "127.0.0.1", 0)
    async with server, asyncio.timeout(5):
        proxy = proxy_to(tmp_path, {"port": server.sockets[0].getsockname()[1]})
        with pytest.raises(errors.ApiError, match=r"no answer within 0\.2 s") as refused:
            await proxy.metrics()
        assert refused.value.code == 503
        assert await proxy.trouble() == "no answer within 0.2 s"


@pytest.mark.parametrize("note", [{}, {"port": None}, {"port": "x"}, []])
async def test_malformed_record_of_the_port_is_a_503_and_trouble(tmp_path: Path, note: object) -> None:
    proxy = proxy_to(tmp_path, note)
    with pytest.raises(errors.ApiError) as refused:
        await proxy.metrics()
    assert refused.value.code == 503
    assert await proxy.trouble()
