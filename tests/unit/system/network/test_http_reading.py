"""Pages of peers that send too much, too slowly, compressed, or to another address."""

import asyncio
import gzip
import itertools
from collections.abc import Iterable

import pytest

from serving import errors
from serving.system.network import http_reading
from tests.rig.machine.tcp_server import tcp_server

LIMIT = 100_000
HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"


async def answer_to_one_request(parts: Iterable[bytes], *, pause: float = 0.0) -> http_reading.Page:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)

    async with tcp_server(answer) as port, http_reading.session() as session:
        return await http_reading.get(session, f"http://127.0.0.1:{port}/metrics", limit=LIMIT, seconds=1.0)


async def test_page_is_read_when_it_has_exactly_the_limit() -> None:
    page = await answer_to_one_request([HEAD, b"\r\n", b"a" * LIMIT])
    assert (page.status, page.text) == (200, "a" * LIMIT)


@pytest.mark.parametrize(
    ("parts", "pause", "rule"),
    [
        ([HEAD, b"\r\n", b"a" * (LIMIT + 1)], 0.0, "more than 100000 bytes"),
        (itertools.chain([HEAD, b"\r\n"], itertools.repeat(b"a" * 10_000)), 0.0, "more than 100000 bytes"),
        (itertools.chain([HEAD, b"\r\n"], itertools.repeat(b"a")), 0.05, "no answer within 1 s"),
        (itertools.chain([HEAD], itertools.repeat(b"x: y\r\n")), 0.05, "no answer within 1 s"),
        (
            [HEAD, b"content-encoding: gzip\r\n\r\n", gzip.compress(bytes(50_000_000))],
            0.0,
            "Content-Encoding: must be identity, got 'gzip'",
        ),
        ([b"\xff\xfe no HTTP\r\n\r\n"], 0.0, "Bad status line"),
    ],
    ids=["long", "endless", "slow", "slow-headers", "compressed", "malformed"],
)
async def test_page_is_refused_when_it_is_not_bounded(
    parts: Iterable[bytes], pause: float, rule: str
) -> None:
    with pytest.raises(errors.Unavailable, match=rule):
        await answer_to_one_request(parts, pause=pause)


async def test_redirect_is_not_followed_when_a_peer_sends_one() -> None:
    asked: list[bytes] = []

    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(HEAD + b"\r\nsecret")

    async with tcp_server(other) as port:
        status = b"HTTP/1.1 302 Found\r\nconnection: close\r\n"
        page = await answer_to_one_request([status, b"location: http://127.0.0.1:%d/iam\r\n\r\n" % port])
    assert page.status == 302
    assert not asked
