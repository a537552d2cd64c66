import asyncio

import pytest

from serving import errors
from serving.metrics import MetricsPage
from serving.system.network import http_reading
from tests.rig.machine.tcp_server import tcp_server


async def read(port: int) -> str:
    pytest.importorskip("openai", reason="openai is not installed")
    from serving.cli.demo import chat_story

    async with http_reading.session() as session:
        return await chat_story._read(session, MetricsPage("gateway", port))


@pytest.mark.parametrize(("status", "is_read"), [("200 OK", True), ("500 Internal Server Error", False)])
async def test_gateways_page_is_read_unless_its_status_is_an_error(status: str, *, is_read: bool) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 4\r\n\r\na 1\n".encode())
        await writer.drain()

    async with tcp_server(answer) as port:
        if is_read:
            assert await read(port) == "a 1\n"
        else:
            with pytest.raises(errors.UserError, match="the metrics page of gateway answers with status 500"):
                await read(port)


async def test_error_names_the_gateways_page_when_that_does_not_answer() -> None:
    with pytest.raises(errors.UserError, match="the metrics page of gateway cannot be read: "):
        await read(1)
