"""The gateway's limits of connections, memory and buffered bytes, with a real Envoy."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import orjson
import pytest

from tests.rig.machine.addresses import own
from tests.rig.machine.tcp_server import tcp_server
from tests.rig.servers.gateway import GatewayRig, backend, endpoint_slice, gateway_rig, route

PORT = 8080
FIRST, SECOND = own(85), own(86)
KIB = 1024


@contextlib.asynccontextmanager
async def losing_replica(address: str) -> AsyncIterator[list[int]]:
    """Read each request to its end, and close the connection; yield the lengths of their bodies."""
    lengths: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        lengths.append(length)

    async with tcp_server(serve, address, PORT):
        yield lengths


async def serve(rig: GatewayRig, addresses: list[str]) -> None:
    digits = route("digits", [("a", 10_000)])
    digits["spec"]["retries"] = {"on": ["Unsent", "Lost"]}
    await rig.serve([digits], [endpoint_slice("digits-a", addresses)])


@pytest.mark.parametrize(("size", "is_repeated"), [(512 * KIB, True), (1536 * KIB, False)])
async def test_request_is_sent_again_when_its_body_is_within_the_limit(
    tmp_path: Path, size: int, *, is_repeated: bool
) -> None:
    async with (
        losing_replica(FIRST) as lengths,
        backend(SECOND, PORT),
        gateway_rig(tmp_path, eject_consecutive_failures=0) as rig,
        aiohttp.ClientSession() as session,
    ):
        await serve(rig, [FIRST, SECOND])
        statuses = []
        while len(lengths) < 2:
            async with session.post(
                f"{rig.url}/default/digits/v2/x", data=io.BytesIO(bytes(size))
            ) as response:
                statuses.append(response.status)
    assert set(lengths) == {size}
    assert (503 not in statuses) == is_repeated


async def test_further_connections_are_closed_when_clients_have_all(tmp_path: Path) -> None:
    async with backend(FIRST, PORT), gateway_rig(tmp_path, connections=3) as rig:
        await serve(rig, [FIRST])
        opened = [await asyncio.open_connection("127.0.0.1", rig.settings.gateway.port) for _ in range(4)]
        request = b"GET /default/digits/v2/x HTTP/1.1\r\nhost: a\r\n\r\n"
        answers = []
        for reader, writer in opened:
            with contextlib.suppress(ConnectionError):
                writer.write(request)
                await writer.drain()
            try:
                answers.append((await reader.readline()).startswith(b"HTTP/1.1 200"))
            except ConnectionError:
                answers.append(False)
        for _, writer in opened:
            writer.close()
        assert answers == [True, True, True, False]
        assert await rig.admin.ready()


async def test_requests_are_503_with_a_reason_when_memory_is_short(tmp_path: Path) -> None:
    async with (
        backend(FIRST, PORT),
        gateway_rig(tmp_path, heap_bytes=1024 * KIB) as rig,
        aiohttp.ClientSession() as session,
    ):
        await serve(rig, [FIRST])
        async with asyncio.timeout(20):
            while True:  # Envoy looks at its memory four times a second
                async with session.get(f"{rig.url}/default/digits/v2/x") as response:
                    body = orjson.loads(await response.read())
                if response.status != 200:
                    break
    assert (response.status, body) == (503, {"error": "envoy overloaded", "reason": "Unavailable"})
    assert response.headers["retry-after"] == "1"


@contextlib.asynccontextmanager
async def half_sent(rig: GatewayRig, count: int, size: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Send requests to a language model, of which a byte is missing."""
    readers, writers = [], []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.settings.gateway.port)
        head = f"POST /default/digits/v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {size}\r\n\r\n"
        writer.write(head.encode() + b" " * (size - 1))
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        readers.append(reader)
        writers.append(writer)
    try:
        yield readers
    finally:
        for writer in writers:
            writer.close()


async def serve_language_model(rig: GatewayRig) -> None:
    digits = route("digits", [("a", 10_000)])
    digits["spec"]["tokenUsage"] = "continuous"
    await rig.serve([digits], [endpoint_slice("digits-a", [FIRST])])


async def test_request_that_never_arrives_as_a_whole_is_refused(tmp_path: Path) -> None:
    async with backend(FIRST, PORT), gateway_rig(tmp_path, request_seconds=1.0) as rig:
        await serve_language_model(rig)
        async with half_sent(rig, 1, 1000) as (reader,), asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")


async def test_memory_of_half_sent_requests_is_freed_when_it_is_short(tmp_path: Path) -> None:
    async with (
        backend(FIRST, PORT),
        gateway_rig(tmp_path, heap_bytes=256 * KIB * KIB) as rig,
        aiohttp.ClientSession() as session,
    ):
        await serve_language_model(rig)

        async def status() -> int:
            async with session.get(f"{rig.url}/default/digits/v2/x") as response:
                return response.status

        async with asyncio.timeout(40), half_sent(rig, 80, 4000 * KIB) as readers:
            ends = [asyncio.ensure_future(reader.read(1)) for reader in readers]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            while await status() != 200:
                await asyncio.sleep(0.05)
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS = 1, 4
END_HEADERS = 4
MAX_CONCURRENT_STREAMS = 3


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def request_headers(method: str, path: str) -> bytes:
    """Return a field section of literals without indexing (RFC 7541, section 6.2.2)."""
    fields = {":method": method, ":scheme": "http", ":authority": "a", ":path": path}
    texts = [text.encode() for field in fields.items() for text in field]
    lengths = [bytes([len(text)]) + text for text in texts]
    return b"".join(b"\0" + name + value for name, value in zip(lengths[::2], lengths[1::2], strict=True))


async def test_streams_of_a_connection_are_limited(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path, connection_streams=7) as rig:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.settings.gateway.port)
        writer.write(PREFACE + frame(SETTINGS, 0, 0))
        header = await reader.readexactly(9)
        assert header[3] == SETTINGS
        payload = await reader.readexactly(int.from_bytes(header[:3], "big"))
        pairs = [payload[at : at + 6] for at in range(0, len(payload), 6)]
        values = {int.from_bytes(pair[:2], "big"): int.from_bytes(pair[2:], "big") for pair in pairs}
        assert values[MAX_CONCURRENT_STREAMS] == 7
        writer.close()


async def test_a_flood_of_half_sent_streams_delays_no_other_service(tmp_path: Path) -> None:
    opened = request_headers("POST", "/default/digits/v2/x")
    flood = PREFACE + frame(SETTINGS, 0, 0)
    flood += b"".join(frame(HEADERS, END_HEADERS, stream, opened) for stream in range(1, 4_001, 2))
    async with (
        backend(FIRST, PORT),
        backend(SECOND, PORT),
        gateway_rig(tmp_path) as rig,
        aiohttp.ClientSession() as session,
    ):
        routes = [route("digits", [("a", 10_000)]), route("other", [("a", 10_000)])]
        await rig.serve(routes, [endpoint_slice("digits-a", [FIRST]), endpoint_slice("other-a", [SECOND])])
        writers = []
        for _ in range(50):
            _, writer = await asyncio.open_connection("127.0.0.1", rig.settings.gateway.port)
            writer.write(flood)
            writers.append(writer)
        async with asyncio.timeout(2), session.get(f"{rig.url}/default/other/v2/x") as response:
            assert response.status == 200
        for writer in writers:
            writer.close()
