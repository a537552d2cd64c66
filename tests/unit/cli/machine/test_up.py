import asyncio

import pytest

from serving.cli.machine import up
from tests.rig.machine.tcp_server import tcp_server


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("status", ["404 Not Found", "503 Service Unavailable"])
async def test_gateway_serves_once_it_knows_the_services(status: str, host: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())
        await writer.drain()

    async with tcp_server(answer, host) as port:
        assert await up._serves(host, port) == (status == "404 Not Found")


async def test_gateway_does_not_serve_when_its_port_is_closed_or_never_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(up, "GATEWAY_SECONDS", 0.1)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with tcp_server(silent) as port:
        assert not await up._serves("127.0.0.1", port)
    assert not await up._serves("127.0.0.1", port)
