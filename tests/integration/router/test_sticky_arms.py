"""Sticky arms through a real Envoy, exactly: which caller is where is computed beforehand, and nothing is a sample."""

import asyncio
import contextlib
import hashlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import aiohttp
import numpy as np

from serving.planning.apportionment import RING_UNITS, apportion_at_least_one
from serving.planning.inference import traffic
from serving.resources.names import ARM_HEADER
from tests.reference.xxh64 import xxh64
from tests.rig.addresses import own
from tests.rig.gateway import World, endpoint_slice, route, world

ARMS = {"stable": own(0), "candidate": own(1), "third": own(2)}
SLICES = [endpoint_slice(f"digits-{arm}", [address]) for arm, address in ARMS.items()]
STICKY = {"header": "x-user-id", "salt": "spring"}
HALVES = {"stable": 1, "candidate": 1}
CONNECTIONS = 16
PIPELINED = 100


def units_of(callers: Sequence[str], sticky: Mapping[str, str] = STICKY) -> list[int]:
    """Return the unit of the ring on which Envoy places each of these callers, whose names are of one length."""
    salt = hashlib.sha256(sticky["salt"].encode()).hexdigest()[:16]
    hashed = np.array([f"{salt}:{caller}".encode() for caller in callers])
    return [int(unit) for unit in xxh64(hashed) % np.uint64(RING_UNITS)]


def one_caller_per_unit() -> list[str]:
    """Return 10,000 callers, the n-th of whom stands on the n-th unit of the ring."""
    callers = [f"user-{number:06}" for number in range(200_000)]
    found = dict(zip(units_of(callers), callers, strict=True))
    return [found[unit] for unit in range(RING_UNITS)]


class Replica(asyncio.Protocol):
    """Answers with nothing, and remembers the last request."""

    last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        Replica.last = data
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" * data.count(b"\r\n\r\n"))


@contextlib.asynccontextmanager
async def envoy(root: Path) -> AsyncIterator[World]:
    """Envoy, with one replica for each arm."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Replica, address, 8080) for address in ARMS.values()]
    try:
        async with world(root) as w:
            yield w
    finally:
        for server in servers:
            server.close()


async def serve(
    w: World, ring: Sequence[traffic.Segment], weights: Mapping[str, int], sticky: dict[str, str] = STICKY
) -> tuple[traffic.Segment, ...]:
    """Serve these weights with as few units of the ring reassigned as can be; returns the ring."""
    after = traffic.reassign(ring, apportion_at_least_one(weights))
    await w.serve([route("digits", [*after], sticky=sticky)], SLICES)
    return after


async def arms_of(w: World, callers: Sequence[str]) -> list[str]:
    """Return the arm that served each caller."""
    share = -(-len(callers) // CONNECTIONS)
    parts = (callers[start : start + share] for start in range(0, len(callers), share))
    return [arm for part in await asyncio.gather(*(_ask(w, part) for part in parts)) for arm in part]


async def _ask(w: World, callers: Sequence[str]) -> list[str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", w.settings.gateway.port)
    found: list[str] = []
    for start in range(0, len(callers), PIPELINED):
        batch = callers[start : start + PIPELINED]
        writer.write(
            b"".join(
                b"GET /default/digits/v2/x HTTP/1.1\r\nhost: a\r\nx-user-id: %b\r\n\r\n" % caller.encode()
                for caller in batch
            )
        )
        answers = b""
        while answers.count(b"\r\n\r\n") < len(batch):
            answers += await reader.read(65536)
        found += [arm.decode() for arm in re.findall(rb"x-slipway-arm: ([^\r]*)", answers)]
    writer.close()
    return found


async def test_of_ten_thousand_callers_exactly_the_change_in_weight_moves_and_none_back(
    tmp_path: Path,
) -> None:
    """One caller stands on each of the ring's 10,000 units, so shares are exact: the tolerance is nothing.

    Any other 10,000 callers are a sample of the ring. Which share of them moves differs from the ring's by chance
    alone, with a standard error of 0.5 % where 40 % move; the test after this one says where each of them is.
    """
    callers = one_caller_per_unit()
    steps: list[dict[str, int]] = [
        {"stable": 90, "candidate": 10}, {"stable": 50, "candidate": 50}, {"stable": 10, "candidate": 60, "third": 30},
    ]  # fmt: skip
    ring: tuple[traffic.Segment, ...] = ()
    seen: list[list[str]] = []
    async with envoy(tmp_path) as w:
        for step in steps:
            ring = await serve(w, ring, step)
            seen.append(await arms_of(w, callers))
            assert Counter(seen[-1]) == apportion_at_least_one(step)
    for (old, new), (before, after) in zip(pairwise(steps), pairwise(seen), strict=True):
        moves = Counter((b, a) for b, a in zip(before, after, strict=True) if a != b)
        change = sum(max(0, weight - new.get(arm, 0)) for arm, weight in old.items())
        assert moves.total() == change * RING_UNITS // 100
        assert all(new.get(left, 0) < old.get(left, 0) and new[to] > old.get(to, 0) for left, to in moves)
    for arms in zip(*seen, strict=True):
        assert sum(a != b for a, b in pairwise(arms)) == len(set(arms)) - 1, "somebody moved back"


async def test_any_caller_is_where_the_ring_says_and_another_salt_deals_anew(tmp_path: Path) -> None:
    callers = [f"somebody-{n:03}" for n in range(1000)]
    seen = []
    async with envoy(tmp_path) as w:
        for sticky in (STICKY, STICKY, {**STICKY, "salt": "autumn"}):
            await serve(w, (), HALVES, sticky)
            seen.append(await arms_of(w, callers))
            assert seen[-1] == [
                "stable" if unit < 5000 else "candidate" for unit in units_of(callers, sticky)
            ]
    assert seen[0] == seen[1] != seen[2]


async def test_a_caller_cannot_name_its_arm_or_be_another(tmp_path: Path) -> None:
    async with envoy(tmp_path) as w, aiohttp.ClientSession() as session:
        await serve(w, (), HALVES)
        callers = [f"user-{n}" for n in range(10)]
        half = [unit // 5000 for unit in units_of(callers)]
        first, second = callers[half.index(0)], callers[half.index(1)]
        for caller, arm, other, forged in (
            (first, "stable", second, "candidate"),
            (second, "candidate", first, "stable"),
        ):
            headers = {"x-user-id": caller, ARM_HEADER: forged, "x-slipway-caller": other}
            async with session.get(f"{w.url}/default/digits/v2/x", headers=headers) as answer:
                assert (answer.status, answer.headers[ARM_HEADER]) == (200, arm)
            assert ARM_HEADER.encode() not in Replica.last
            assert b"x-slipway-caller" not in Replica.last
