"""Sticky arms through a real Envoy; the expected arm of every caller is computed, so checks are exact."""

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

from serving.planning.apportionment import apportion_at_least_one
from serving.planning.inference import traffic
from serving.resources.names import ARM_HEADER
from serving.resources.traffic_split import RING_UNITS
from tests.reference.xxh64 import xxh64
from tests.rig.machine.addresses import own
from tests.rig.servers.gateway import GatewayRig, endpoint_slice, gateway_rig, route

ARMS = {"stable": own(5), "canary": own(6), "third": own(7)}
SLICES = [endpoint_slice(f"digits-{arm}", [address]) for arm, address in ARMS.items()]
STICKY = {"header": "x-user-id", "salt": "spring"}
HALVES = {"stable": 1, "canary": 1}
CONNECTIONS = 16
PIPELINED = 100


def units_of(callers: Sequence[str], sticky: Mapping[str, str] = STICKY) -> list[int]:
    """Return the ring unit on which Envoy places each of these callers; their names have the same length."""
    salt = hashlib.sha256(sticky["salt"].encode()).hexdigest()[:16]
    hashed = np.array([f"{salt}:{caller}".encode() for caller in callers])
    return [int(unit) for unit in xxh64(hashed) % np.uint64(RING_UNITS)]


def one_caller_per_unit() -> list[str]:
    """Return 10,000 callers, the n-th of whom stands on the n-th unit of the ring."""
    callers = [f"user-{number:06}" for number in range(200_000)]
    caller_of = dict(zip(units_of(callers), callers, strict=True))
    return [caller_of[unit] for unit in range(RING_UNITS)]


class EmptyReplica(asyncio.Protocol):
    """Answers with an empty body, and keeps the last request."""

    last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        EmptyReplica.last = data
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" * data.count(b"\r\n\r\n"))


@contextlib.asynccontextmanager
async def envoy(root: Path) -> AsyncIterator[GatewayRig]:
    """Envoy, with one replica for each arm."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(EmptyReplica, address, 8080) for address in ARMS.values()]
    try:
        async with gateway_rig(root) as rig:
            yield rig
    finally:
        for server in servers:
            server.close()


async def serve(
    rig: GatewayRig,
    ring: Sequence[traffic.ArmSegment],
    weights: Mapping[str, int],
    sticky: dict[str, str] = STICKY,
) -> tuple[traffic.ArmSegment, ...]:
    """Serve these weights with as few reassigned ring units as possible; return the new ring."""
    new_ring = traffic.reassign(ring, apportion_at_least_one(weights))
    await rig.serve([route("digits", [*new_ring], sticky=sticky)], SLICES)
    return new_ring


async def arms_of(rig: GatewayRig, callers: Sequence[str]) -> list[str]:
    """Return the arm that served each caller."""
    share = -(-len(callers) // CONNECTIONS)
    parts = (callers[start : start + share] for start in range(0, len(callers), share))
    return [arm for part in await asyncio.gather(*(_ask(rig, part) for part in parts)) for arm in part]


async def _ask(rig: GatewayRig, callers: Sequence[str]) -> list[str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.settings.gateway.port)
    arms: list[str] = []
    for start in range(0, len(callers), PIPELINED):
        batch = callers[start : start + PIPELINED]
        writer.write(
            b"".join(
                b"GET /default/digits/v2/x HTTP/1.1\r\nhost: a\r\nx-user-id: %b\r\n\r\n" % caller.encode()
                for caller in batch
            )
        )
        received = b""
        while received.count(b"\r\n\r\n") < len(batch):
            received += await reader.read(65536)
        arms += [arm.decode() for arm in re.findall(rb"x-slipway-arm: ([^\r]*)", received)]
    writer.close()
    return arms


async def test_exactly_the_changed_share_of_callers_moves_and_none_moves_back(
    tmp_path: Path,
) -> None:
    """One caller stands on each of the ring's 10,000 units, so shares are exact, without tolerance.

    Any other 10,000 callers are a sample of the ring: the share that moves has a standard error of 0.5 %
    where 40 % move. The next test checks the position of each of them.
    """
    callers = one_caller_per_unit()
    steps: list[dict[str, int]] = [
        {"stable": 90, "canary": 10},
        {"stable": 50, "canary": 50},
        {"stable": 10, "canary": 60, "third": 30},
    ]
    ring: tuple[traffic.ArmSegment, ...] = ()
    arms_by_step: list[list[str]] = []
    async with envoy(tmp_path) as rig:
        for step in steps:
            ring = await serve(rig, ring, step)
            arms_by_step.append(await arms_of(rig, callers))
            assert Counter(arms_by_step[-1]) == apportion_at_least_one(step)
    for (old, new), (old_arms, new_arms) in zip(pairwise(steps), pairwise(arms_by_step), strict=True):
        moves = Counter((b, a) for b, a in zip(old_arms, new_arms, strict=True) if a != b)
        change = sum(max(0, weight - new.get(arm, 0)) for arm, weight in old.items())
        assert moves.total() == change * RING_UNITS // 100
        assert all(
            new.get(origin, 0) < old.get(origin, 0) and new[to] > old.get(to, 0) for origin, to in moves
        )
    for arms in zip(*arms_by_step, strict=True):
        assert sum(a != b for a, b in pairwise(arms)) == len(set(arms)) - 1, "a caller moved back"


async def test_caller_is_served_by_its_ring_position_and_salt(tmp_path: Path) -> None:
    callers = [f"somebody-{n:03}" for n in range(1000)]
    arms_by_salt = []
    async with envoy(tmp_path) as rig:
        for sticky in (STICKY, STICKY, {**STICKY, "salt": "autumn"}):
            await serve(rig, (), HALVES, sticky)
            arms_by_salt.append(await arms_of(rig, callers))
            assert arms_by_salt[-1] == [
                "stable" if unit < 5000 else "canary" for unit in units_of(callers, sticky)
            ]
    assert arms_by_salt[0] == arms_by_salt[1] != arms_by_salt[2]


async def test_caller_cannot_choose_its_arm_or_forge_an_identity(tmp_path: Path) -> None:
    async with envoy(tmp_path) as rig, aiohttp.ClientSession() as session:
        await serve(rig, (), HALVES)
        callers = [f"user-{n}" for n in range(10)]
        half = [unit // 5000 for unit in units_of(callers)]
        stable_caller, canary_caller = callers[half.index(0)], callers[half.index(1)]
        for caller, arm, impersonated, forged in (
            (stable_caller, "stable", canary_caller, "canary"),
            (canary_caller, "canary", stable_caller, "stable"),
        ):
            headers = {"x-user-id": caller, ARM_HEADER: forged, "x-slipway-caller": impersonated}
            async with session.get(f"{rig.url}/default/digits/v2/x", headers=headers) as response:
                assert (response.status, response.headers[ARM_HEADER]) == (200, arm)
            assert b"x-slipway-caller" not in EmptyReplica.last
