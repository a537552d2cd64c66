"""DeltaXdsServer with an Envoy that reads late: no request ever needs a missing resource."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.data_dir import DataDir
from serving.router.envoy import messages_pb2
from serving.router.envoy.clusters import SocketFolders
from serving.router.envoy.render import Renderer
from serving.router.envoy.weights import LAYERS
from serving.router.plan.route_table import RouteTable
from serving.router.plan.service import GatewayService, gateway_service
from serving.router.xds.server import LONGEST_ROUTES_PAUSE, DeltaXdsServer, Rejected
from serving.settings import GatewaySettings
from tests.fakes.envoy import FakeAdmin, FakeEnvoy
from tests.rig.servers.gateway import endpoint_slice, replaced, route

Arms = dict[str, tuple[int, bool]]
"""Per arm: its weight in tenths, and whether a replica is ready."""


def plan(services: dict[str, Arms], *, sticky: bool = False, limit: int = 1) -> list[GatewayService]:
    """Return services whose arms have these weights, readiness and limit of requests."""
    planned = []
    for name, arms in services.items():
        total = sum(weight for weight, _ in arms.values()) or 1
        sizes = {arm: 10_000 * weight // total for arm, (weight, _) in arms.items() if weight}
        if sizes:
            sizes[next(iter(sizes))] += 10_000 - sum(sizes.values())
        caller = {"header": "x-user", "salt": "s"} if sticky else None
        slices = {
            f"{name}-{arm}": [endpoint_slice(f"{name}-{arm}", ["127.77.0.2"])]
            for arm, (_, up) in arms.items()
            if up
        }
        spec = route(name, list(sizes.items()), unweighted=[a for a in arms if a not in sizes], sticky=caller)
        spec["spec"]["backends"].sort(key=lambda backend: str(backend["arm"]))
        for backend in spec["spec"]["backends"]:
            backend["limits"] = {"requests": limit}
        planned.append(gateway_service(spec, slices))
    return planned


class PlanServer(DeltaXdsServer):
    """A server whose target is set by full plans."""

    def __init__(self, envoy: FakeEnvoy) -> None:
        self.time = 0.0
        super().__init__(DataDir(Path("/nowhere")), FakeAdmin(envoy), now=lambda: self.time)  # type: ignore[arg-type]
        self._table, self._renderer = (
            RouteTable(),
            Renderer(GatewaySettings(), SocketFolders("/activator", "/sockets")),
        )

    def set_services(self, services: list[GatewayService]) -> int:
        return self.set_target(self._renderer.render(replaced(self._table, services)))


def envoy_and_server() -> tuple[FakeEnvoy, PlanServer]:
    envoy = FakeEnvoy()
    return envoy, PlanServer(envoy)


async def settle(envoy: FakeEnvoy) -> None:
    while await envoy.read():
        assert envoy.missing() == []


def next_names(envoy: FakeEnvoy) -> list[str]:
    """Return the names of the resources in the oldest unread response."""
    response = envoy.next_response()
    return [] if response is None else [resource.name for resource in response.resources]


def has_exactly(envoy: FakeEnvoy, services: list[GatewayService]) -> None:
    expected = Renderer(GatewaySettings(), SocketFolders("/activator", "/sockets")).render(
        replaced(RouteTable(), services)
    )
    versions = {kind: {n: v for n, (v, _) in resources.items()} for kind, resources in envoy.has.items()}
    assert versions["clusters"] == {n: r.version for n, r in expected.clusters.items() if r}
    assert versions["endpoints"] == {n: r.version for n, r in expected.endpoints.items() if r}
    assert envoy.warming == set()
    assert versions["routes"] == {n: r.version for n, (r, _) in expected.routes.items()}
    assert envoy.weights == {
        key: value
        for w in expected.weights.values()
        if w
        for key, value in messages_pb2.Runtime.FromString(w.entries).layer.items()
    }


_arms = st.dictionaries(st.sampled_from("pqr"), st.tuples(st.integers(0, 3), st.booleans()), min_size=1)
_plans = st.builds(
    plan,
    st.dictionaries(st.sampled_from("ab"), _arms, max_size=2),
    sticky=st.booleans(),
    limit=st.integers(1, 2),
)
_steps = st.lists(st.one_of(_plans, st.sampled_from(["read", "read", "connect", "new gateway"])), max_size=25)


@settings(max_examples=60)
@given(_steps)
def test_no_request_lacks_a_resource_whenever_envoy_reads_or_either_side_reconnects(
    steps: list[Any],
) -> None:
    async def walk() -> None:
        envoy, server = envoy_and_server()
        target = plan({})
        server.set_services(target)
        await envoy.connect(server)
        for step in steps:
            if isinstance(step, list):
                target = step
                server.set_services(target)
            elif step == "read":
                await envoy.read()
            else:
                if step == "new gateway":
                    server = PlanServer(envoy)
                await envoy.connect(server)
                server.set_services(target)
            assert envoy.missing() == []
        await settle(envoy)
        has_exactly(envoy, target)
        await asyncio.wait_for(server.wait_acknowledged(), 1)

    asyncio.run(walk())


async def test_resources_of_a_service_are_removed_after_its_routes() -> None:
    envoy, server = envoy_and_server()
    two_arms: Arms = {"p": (9, True), "q": (1, True)}
    server.set_services(plan({"a": two_arms, "b": two_arms}))
    await envoy.connect(server)
    await settle(envoy)
    for remaining in ({"a": {"p": (1, True), "r": (1, True)}}, {"a": {"r": (1, True)}}, {}):
        server.set_services(plan(remaining))
        await settle(envoy)
        has_exactly(envoy, plan(remaining))


async def test_a_changed_cluster_gets_its_endpoints_again() -> None:
    envoy, server = envoy_and_server()
    await envoy.connect(server)
    for limit in (1, 2):
        services = plan({"a": {"p": (1, True), "q": (1, False)}}, limit=limit)
        server.set_services(services)
        await settle(envoy)
        has_exactly(envoy, services)


async def test_a_target_is_acknowledged_once_envoy_has_its_routes_and_weights() -> None:
    envoy, server = envoy_and_server()
    first = server.set_services(plan({"a": {"p": (9, True), "q": (1, True)}}))
    await envoy.connect(server)
    assert server.acknowledged_version < first
    await settle(envoy)
    assert server.acknowledged_version == first
    second = server.set_services(plan({"a": {"p": (5, True), "q": (5, True)}}))
    third = server.set_services(plan({"a": {"p": (5, True), "q": (5, True)}, "b": {"p": (1, True)}}))
    assert await envoy.read()
    assert first <= server.acknowledged_version < third
    await settle(envoy)
    assert second < server.acknowledged_version == third


async def test_services_without_backends_are_acknowledged_when_envoy_subscribes_to_no_endpoints() -> None:
    envoy, server = envoy_and_server()
    target = server.set_services(plan({"a": {}}))
    await envoy.connect(server)
    await settle(envoy)
    await asyncio.wait_for(server.wait_acknowledged(), 1)
    assert server.acknowledged_version == target


async def test_a_target_is_not_acknowledged_when_another_envoy_has_only_a_part_of_its_routes() -> None:
    killed, server = envoy_and_server()
    target = server.set_services(plan({"a": {"p": (1, True)}}))
    await killed.connect(server)
    while "public" not in next_names(killed):
        await killed.read()
    envoy = FakeEnvoy()
    await envoy.connect(server)
    while "public" not in envoy.has["routes"]:
        assert server.acknowledged_version < target
        assert await envoy.read()
    assert server.acknowledged_version == target


async def test_a_rejected_target_is_not_acknowledged_when_envoy_has_a_part_of_the_next_one() -> None:
    envoy, server = envoy_and_server()
    arms: Arms = {"p": (1, True)}
    accepted = server.set_services(plan({"a": arms}))
    await envoy.connect(server)
    await settle(envoy)
    envoy.rejects = {"public"}
    server.set_services(plan({"a": arms, "b": arms}))
    await settle(envoy)
    with pytest.raises(Rejected):
        await server.wait_acknowledged()
    envoy.rejects = set()
    target = server.set_services(plan({"a": arms, "c": arms}))
    while await envoy.read():
        assert server.acknowledged_version in (accepted, target)
    assert server.acknowledged_version == target


async def test_a_change_of_weights_alone_sends_weights_alone() -> None:
    envoy, server = envoy_and_server()
    arms: Arms = {"p": (9, True), "q": (1, True), "r": (0, True)}
    server.set_services(plan({"a": arms}))
    await envoy.connect(server)
    await settle(envoy)
    old_resources = {kind: dict(resources) for kind, resources in envoy.has.items()}
    for weights in ((5, 5, 0), (0, 0, 1), (9, 1, 0)):
        server.set_services(plan({"a": {arm: (w, True) for arm, w in zip(arms, weights, strict=True)}}))
        assert await envoy.read()
        assert not await envoy.read()
        for kind in ("clusters", "endpoints", "routes"):
            assert envoy.has[kind] == old_resources[kind]
    assert sorted(envoy.weights.values()) == [0, 1000, 9000]


async def test_each_layer_of_weights_is_answered_even_without_weights() -> None:
    envoy, server = envoy_and_server()
    server.set_services(plan({"a": {"p": (9, True), "q": (1, True)}}))
    await envoy.connect(server)
    await settle(envoy)
    assert envoy.has["weights"].keys() == set(LAYERS)


async def test_weights_that_envoy_rejected_wait_for_endpoints_as_others_do() -> None:
    envoy, server = envoy_and_server()
    server.set_services(plan({"a": {"p": (1, True), "q": (0, False)}}))
    await envoy.connect(server)
    await settle(envoy)
    envoy.rejects = set(LAYERS)
    server.set_services(plan({"a": {"p": (9, True), "q": (1, True)}}))
    await settle(envoy)
    with pytest.raises(Rejected):
        await server.wait_acknowledged()
    envoy.rejects = set()
    server.set_services(plan({"a": {"p": (9, True), "q": (1, False)}}))
    await settle(envoy)
    assert sorted(envoy.weights.values()) == [0, 10_000]


async def test_reconnecting_envoy_gets_only_missing_resources() -> None:
    envoy, server = envoy_and_server()
    server.set_services(plan({"a": {"p": (9, True), "q": (1, True)}}))
    await envoy.connect(server)
    await settle(envoy)
    new_server = PlanServer(envoy)
    await envoy.connect(new_server)
    new_server.set_services(plan({"a": {"p": (9, True), "q": (1, True)}, "b": {"p": (1, True)}}))
    names: list[str] = []
    while response := envoy.next_response():
        names += [r.name for r in response.resources if r.name.startswith("default/")]
        await envoy.read()
    assert set(names) == {"default/b-p/8080"}


async def test_routes_wait_after_envoy_was_slow_to_read_the_last_ones() -> None:
    envoy, server = envoy_and_server()
    arms: Arms = {"p": (1, True)}
    await envoy.connect(server)
    target = server.set_services(plan({"a": arms}))
    while server.acknowledged_version < target:
        server.time += 1
        await envoy.read()
        target = server.set_services(plan({"a": arms}))
    server.time += LONGEST_ROUTES_PAUSE / 2
    server.set_services(plan({"a": arms, "b": arms}))
    await settle(envoy)
    assert "default/b-p/8080" in envoy.has["endpoints"]
    assert server.acknowledged_version == target
    server.time += LONGEST_ROUTES_PAUSE / 2
    server.set_services(plan({"a": arms, "b": arms}))
    await settle(envoy)
    has_exactly(envoy, plan({"a": arms, "b": arms}))


async def test_a_rejected_update_raises_envoys_message_and_the_next_target_is_sent() -> None:
    envoy, server = envoy_and_server()
    accepted, rejected = {"a": {"p": (1, True)}}, {"a": {"p": (1, True)}, "b": {"p": (1, True)}}
    server.set_services(plan(accepted))
    await envoy.connect(server)
    await settle(envoy)
    envoy.rejects = {"default/b-p/8080"}
    server.set_services(plan(rejected))
    await settle(envoy)
    with pytest.raises(Rejected, match="no default/b-p/8080"):
        await server.wait_acknowledged()
    server.set_services(plan(accepted))
    await settle(envoy)
    await server.wait_acknowledged()
    has_exactly(envoy, plan(accepted))


async def test_a_later_plan_overtakes_one_that_was_not_sent() -> None:
    envoy, server = envoy_and_server()
    server.set_services(plan({}))
    await envoy.connect(server)
    for n in range(1, 9):
        server.set_services(plan({"a": {"p": (n, True), "q": (9 - n, True)}}))
    reads = 0
    while await envoy.read():
        reads += 1
    has_exactly(envoy, plan({"a": {"p": (8, True), "q": (1, True)}}))
    assert reads < 12
