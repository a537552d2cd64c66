"""Delivery against an Envoy that reads late: whatever it has at any moment, no request of it meets what is missing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.router.envoy import wire
from serving.router.envoy.render import Renderer
from serving.router.plan.route_table import Assembly
from serving.router.plan.service import Service, service_of
from serving.router.xds.server import LONGEST_PAUSE, Delivery, Rejected
from serving.settings import GatewaySettings
from tests.fakes.envoy import FakeAdmin, FakeEnvoy
from tests.rig.gateway import endpoint_slice, replaced, route

Arms = dict[str, tuple[int, bool]]
"""Per arm: its weight in tenths, and whether a replica is ready."""


def plan(services: dict[str, Arms], *, sticky: bool = False) -> list[Service]:
    """Services of arms, each with its own weight and readiness."""
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
    return found


class Teller(Delivery):
    """A delivery that is told plans as a whole."""

    def __init__(self, envoy: FakeEnvoy) -> None:
        self.time = 0.0
        super().__init__(Path("/nowhere"), FakeAdmin(envoy), now=lambda: self.time)  # type: ignore[arg-type]
        self._assembly, self._renderer = Assembly(), Renderer(GatewaySettings(), "/activator")

    def tell(self, services: list[Service]) -> int:
        return self.aim(self._renderer.render(replaced(self._assembly, services)))


def world() -> tuple[FakeEnvoy, Teller]:
    envoy = FakeEnvoy()
    return envoy, Teller(envoy)


async def settle(envoy: FakeEnvoy) -> None:
    while await envoy.read():
        assert envoy.missing() == []


def has_exactly(envoy: FakeEnvoy, services: list[Service]) -> None:
    wanted = Renderer(GatewaySettings(), "/activator").render(replaced(Assembly(), services))
    versions = {kind: {n: v for n, (v, _) in found.items()} for kind, found in envoy.has.items()}
    assert versions["clusters"] == {n: r.version for n, r in wanted.clusters.items() if r}
    assert versions["endpoints"] == {n: r.version for n, r in wanted.endpoints.items() if r}
    assert versions["routes"] == {n: r.version for n, (r, _) in wanted.routes.items()}
    assert envoy.weights == {
        key: value
        for w in wanted.weights.values()
        if w
        for key, value in wire.decode("Struct", w.entries).items()
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
        delivery.tell(aim)
        await envoy.connect(delivery)
        for step in steps:
            if isinstance(step, list):
                aim = step
                delivery.tell(aim)
            elif step == "read":
                await envoy.read()
            else:
                if step == "new gateway":
                    delivery = Teller(envoy)
                await envoy.connect(delivery)
                delivery.tell(aim)
            assert envoy.missing() == []
        await settle(envoy)
        has_exactly(envoy, aim)
        await asyncio.wait_for(delivery.confirm(), 1)

    asyncio.run(walk())


async def test_what_a_service_needed_goes_after_its_routes() -> None:
    envoy, delivery = world()
    both: Arms = {"p": (9, True), "q": (1, True)}
    delivery.tell(plan({"a": both, "b": both}))
    await envoy.connect(delivery)
    await settle(envoy)
    for left in ({"a": {"p": (1, True), "r": (1, True)}}, {"a": {"r": (1, True)}}, {}):
        delivery.tell(plan(left))
        await settle(envoy)
        has_exactly(envoy, plan(left))


async def test_an_aim_counts_as_served_once_envoy_has_its_routes_and_weights() -> None:
    envoy, delivery = world()
    first = delivery.tell(plan({"a": {"p": (9, True), "q": (1, True)}}))
    await envoy.connect(delivery)
    assert delivery.served < first
    await settle(envoy)
    assert delivery.served == first
    second = delivery.tell(plan({"a": {"p": (5, True), "q": (5, True)}}))
    third = delivery.tell(plan({"a": {"p": (5, True), "q": (5, True)}, "b": {"p": (1, True)}}))
    assert await envoy.read()
    assert first <= delivery.served < third
    await settle(envoy)
    assert second < delivery.served == third


async def test_a_change_of_weights_alone_sends_weights_alone() -> None:
    envoy, delivery = world()
    arms: Arms = {"p": (9, True), "q": (1, True), "r": (0, True)}
    delivery.tell(plan({"a": arms}))
    await envoy.connect(delivery)
    await settle(envoy)
    before = {kind: dict(found) for kind, found in envoy.has.items()}
    for weights in ((5, 5, 0), (0, 0, 1), (9, 1, 0)):
        delivery.tell(plan({"a": {arm: (w, True) for arm, w in zip(arms, weights, strict=True)}}))
        assert await envoy.read()
        assert not await envoy.read()
        for kind in ("clusters", "endpoints", "routes"):
            assert envoy.has[kind] == before[kind]
    assert sorted(envoy.weights.values()) == [0, 1000, 9000]


async def test_what_envoy_has_is_not_sent_again_when_it_comes_back() -> None:
    envoy, delivery = world()
    delivery.tell(plan({"a": {"p": (9, True), "q": (1, True)}}))
    await envoy.connect(delivery)
    await settle(envoy)
    again = Teller(envoy)
    await envoy.connect(again)
    again.tell(plan({"a": {"p": (9, True), "q": (1, True)}, "b": {"p": (1, True)}}))
    sent: list[str] = []
    while envoy._inbox:
        message = wire.decode("DeltaDiscoveryResponse", envoy._inbox[0])
        sent += [r["name"] for r in message.get("resources", []) if r["name"].startswith("default/")]
        await envoy.read()
    assert set(sent) == {"default/b-p/8080"}


async def test_routes_that_envoy_took_long_to_read_are_not_followed_by_others_at_once() -> None:
    envoy, delivery = world()
    one: Arms = {"p": (1, True)}
    await envoy.connect(delivery)
    aim = delivery.tell(plan({"a": one}))
    while delivery.served < aim:
        delivery.time += 1
        await envoy.read()
        aim = delivery.tell(plan({"a": one}))
    delivery.time += LONGEST_PAUSE / 2
    delivery.tell(plan({"a": one, "b": one}))
    await settle(envoy)
    assert "default/b-p/8080" in envoy.has["endpoints"]
    assert delivery.served == aim
    delivery.time += LONGEST_PAUSE / 2
    delivery.tell(plan({"a": one, "b": one}))
    await settle(envoy)
    has_exactly(envoy, plan({"a": one, "b": one}))


async def test_a_rejected_update_is_told_in_envoys_words_and_the_next_aim_goes_on() -> None:
    envoy, delivery = world()
    good, bad = {"a": {"p": (1, True)}}, {"a": {"p": (1, True)}, "b": {"p": (1, True)}}
    delivery.tell(plan(good))
    await envoy.connect(delivery)
    await settle(envoy)
    envoy.rejects = {"default/b-p/8080"}
    delivery.tell(plan(bad))
    await settle(envoy)
    with pytest.raises(Rejected, match="no default/b-p/8080"):
        await delivery.confirm()
    delivery.tell(plan(good))
    await settle(envoy)
    await delivery.confirm()
    has_exactly(envoy, plan(good))


async def test_a_plan_that_comes_meanwhile_overtakes_what_was_not_sent() -> None:
    envoy, delivery = world()
    delivery.tell(plan({}))
    await envoy.connect(delivery)
    for n in range(1, 9):
        delivery.tell(plan({"a": {"p": (n, True), "q": (9 - n, True)}}))
    reads = 0
    while await envoy.read():
        reads += 1
    has_exactly(envoy, plan({"a": {"p": (8, True), "q": (1, True)}}))
    assert reads < 12
