"""Delivery against an Envoy that reads late: whatever it has at any moment, no request of it meets what is missing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.router.delivery import Delivery, Rejected
from serving.router.envoy import wire
from serving.router.envoy.render import Rendered, Renderer
from serving.router.plan import assemble, service_of
from serving.settings import GatewaySettings
from tests.fakes.envoy import FakeAdmin, FakeEnvoy
from tests.fakes.gateway import endpoint_slice, route

Arms = dict[str, tuple[int, bool]]
"""Per arm: its weight in tenths, and whether a replica is ready."""


def plan(services: dict[str, Arms], *, sticky: bool = False) -> Rendered:
    """Render services of arms, each with its own weight and readiness."""
    found = []
    for name, arms in services.items():
        total = sum(weight for weight, _ in arms.values()) or 1
        sizes = {arm: 10_000 * weight // total for arm, (weight, _) in arms.items() if weight}
        if sizes:
            sizes[next(iter(sizes))] += 10_000 - sum(sizes.values())
        told = {"header": "x-user", "salt": "s"} if sticky else None
        slices = {
            f"{name}-{arm}": [endpoint_slice(f"{name}-{arm}", ["127.77.0.2"])]
            for arm, (_, up) in arms.items()
            if up
        }
        spec = route(name, list(sizes.items()), unweighted=[a for a in arms if a not in sizes], sticky=told)
        spec["spec"]["backends"].sort(key=lambda backend: str(backend["arm"]))
        found.append(service_of(spec, slices))
    return Renderer(GatewaySettings()).render(assemble(found))


def world() -> tuple[FakeEnvoy, Delivery]:
    envoy = FakeEnvoy()
    return envoy, gateway_of(envoy)


def gateway_of(envoy: FakeEnvoy) -> Delivery:
    return Delivery(Path("/nowhere"), FakeAdmin(envoy))  # type: ignore[arg-type]


async def settle(envoy: FakeEnvoy) -> None:
    while await envoy.read():
        assert envoy.missing() == []


def has_exactly(envoy: FakeEnvoy, wanted: Rendered) -> None:
    versions = {kind: {n: v for n, (v, _) in found.items()} for kind, found in envoy.has.items()}
    assert versions["clusters"] == {n: r.version for n, r in wanted.clusters.items()}
    assert versions["endpoints"] == {n: r.version for n, r in wanted.endpoints.items()}
    assert versions["routes"] == {n: r.version for n, r in wanted.routes.items()}
    assert envoy.weights == {
        key: value for w in wanted.weights.values() for key, value in wire.decode("Struct", w.entries).items()
    }


_arms = st.dictionaries(st.sampled_from("pqr"), st.tuples(st.integers(0, 3), st.booleans()), min_size=1)
_plans = st.builds(plan, st.dictionaries(st.sampled_from("ab"), _arms, max_size=2), sticky=st.booleans())
_steps = st.lists(st.one_of(_plans, st.sampled_from(["read", "read", "connect", "new gateway"])), max_size=25)


@settings(max_examples=60)
@given(_steps)
def test_no_request_meets_what_is_missing_whenever_envoy_reads_and_whoever_comes_back(
    steps: list[Any],
) -> None:
    async def walk() -> None:
        envoy, delivery = world()
        aim = plan({})
        delivery.aim(aim)
        await envoy.connect(delivery)
        for step in steps:
            if isinstance(step, Rendered):
                aim = step
                delivery.aim(aim)
            elif step == "read":
                await envoy.read()
            else:
                if step == "new gateway":
                    delivery = gateway_of(envoy)
                await envoy.connect(delivery)
                delivery.aim(aim)
            assert envoy.missing() == []
        await settle(envoy)
        has_exactly(envoy, aim)
        await asyncio.wait_for(delivery.confirm(), 1)

    asyncio.run(walk())


async def test_a_change_of_weights_alone_sends_weights_alone() -> None:
    envoy, delivery = world()
    arms: Arms = {"p": (9, True), "q": (1, True), "r": (0, True)}
    delivery.aim(plan({"a": arms}))
    await envoy.connect(delivery)
    await settle(envoy)
    before = {kind: dict(found) for kind, found in envoy.has.items()}
    for weights in ((5, 5, 0), (0, 0, 1), (9, 1, 0)):
        delivery.aim(plan({"a": {arm: (w, True) for arm, w in zip(arms, weights, strict=True)}}))
        assert await envoy.read()
        assert not await envoy.read()
        for kind in ("clusters", "endpoints", "routes"):
            assert envoy.has[kind] == before[kind]
    assert sorted(envoy.weights.values()) == [0, 1000, 9000]


async def test_what_envoy_has_is_not_sent_again_when_it_comes_back() -> None:
    envoy, delivery = world()
    delivery.aim(plan({"a": {"p": (9, True), "q": (1, True)}}))
    await envoy.connect(delivery)
    await settle(envoy)
    again = gateway_of(envoy)
    await envoy.connect(again)
    again.aim(plan({"a": {"p": (9, True), "q": (1, True)}, "b": {"p": (1, True)}}))
    sent: list[str] = []
    while envoy._inbox:
        message = wire.decode("DeltaDiscoveryResponse", envoy._inbox[0])
        sent += [r["name"] for r in message.get("resources", []) if r["name"].startswith("default/")]
        await envoy.read()
    assert set(sent) == {"default/b-p/8080"}


async def test_a_rejected_update_is_told_in_envoys_words_and_the_next_aim_goes_on() -> None:
    envoy, delivery = world()
    good, bad = {"a": {"p": (1, True)}}, {"a": {"p": (1, True)}, "b": {"p": (1, True)}}
    delivery.aim(plan(good))
    await envoy.connect(delivery)
    await settle(envoy)
    envoy.rejects = {"default/b-p/8080"}
    delivery.aim(plan(bad))
    await settle(envoy)
    with pytest.raises(Rejected, match="no default/b-p/8080"):
        await delivery.confirm()
    delivery.aim(plan(good))
    await settle(envoy)
    await delivery.confirm()
    has_exactly(envoy, plan(good))


async def test_a_plan_that_comes_meanwhile_overtakes_what_was_not_sent() -> None:
    envoy, delivery = world()
    delivery.aim(plan({}))
    await envoy.connect(delivery)
    for n in range(1, 9):
        delivery.aim(plan({"a": {"p": (n, True), "q": (9 - n, True)}}))
    reads = 0
    while await envoy.read():
        reads += 1
    has_exactly(envoy, plan({"a": {"p": (8, True), "q": (1, True)}}))
    assert reads < 12
