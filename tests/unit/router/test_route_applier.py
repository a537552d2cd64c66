"""The gateway's process with an Envoy that rejects updates or reads late: the status has Envoy's answers."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from serving.data_dir import DataDir
from serving.objects import Object
from serving.resources import kinds
from serving.router.envoy.process.envoy_process import EnvoyProcess
from serving.router.metrics.collector import StatisticsCollector
from serving.router.route_applier import RouteApplier
from serving.router.xds.server import DeltaXdsServer
from serving.router.xds.session import TYPE_NAMES
from tests.fakes.envoy import FakeAdmin, FakeEnvoy
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import running, until
from tests.rig.servers.gateway import endpoint_slice, route, settings_for_test


def cluster_of(name: str) -> str:
    return f"default/{name}-only/8080"


def store(kube: FakeKube, name: str) -> None:
    kube.add(kinds.ROUTE, route(name, [("only", 10_000)]))
    kube.add(kinds.ENDPOINT_SLICE, endpoint_slice(f"{name}-only", ["127.77.0.2"]))


def message_of(kube: FakeKube, name: str) -> str | None:
    """Return the message in the gateway's entry of a Route; None without an entry."""
    return entry_of(kube, name).get("message")


def entry_of(kube: FakeKube, name: str) -> Object:
    """Return the gateway's entry in the status of a Route; empty without an entry."""
    status: Object = kube.objects["routes", "default", name].get("status") or {}
    return next(iter(status.get("gateways") or []), {})


def next_type(envoy: FakeEnvoy) -> str:
    """Return the type of the oldest unread response; empty without one."""
    response = envoy.next_response()
    return "" if response is None else TYPE_NAMES[response.type_url]


@asynccontextmanager
async def gateway(
    tmp_path: Path, *, rejects: Iterable[str] = ()
) -> AsyncIterator[tuple[FakeKube, FakeEnvoy, asyncio.Task[None]]]:
    """Yield a gateway whose Envoy has the service `a`, or has rejected it."""
    kube, envoy, settings = FakeKube(), FakeEnvoy(), settings_for_test()
    data_dir = DataDir(tmp_path)
    admin = FakeAdmin(envoy)
    server = DeltaXdsServer(data_dir, admin)  # type: ignore[arg-type]
    process = EnvoyProcess(data_dir, settings.gateway)
    collector = StatisticsCollector("local", admin, process, data_dir.earlier_answers)  # type: ignore[arg-type]

    async def answer() -> None:
        while True:  # one answer at a time: the gateway runs in between
            await envoy.read()
            await asyncio.sleep(0.001)

    store(kube, "a")
    envoy.rejects = set(rejects)
    await envoy.connect(server)
    applier = RouteApplier(kube, server, collector, data_dir, settings, pages=dict)
    async with running(applier.run(), answer()) as (task, _):
        await until(lambda: message_of(kube, "a") is not None)
        yield kube, envoy, task


def move(kube: FakeKube, name: str, address: str) -> None:
    """Give a service another endpoint."""
    set_endpoints(kube, name, endpoint_slice(f"{name}-only", [address])["endpoints"])


def add_unready_endpoint(kube: FakeKube, name: str) -> None:
    """Change the EndpointSlice of a service, but not the service."""
    service = f"{name}-only"
    old = kube.objects["endpointslices", "default", f"{service}-1"]["endpoints"]
    new = endpoint_slice(service, ["127.77.0.8"], ready=False)["endpoints"]
    set_endpoints(kube, name, [*old, *new])


def set_endpoints(kube: FakeKube, name: str, endpoints: list[Object]) -> None:
    kube.change(kinds.ENDPOINT_SLICE, "default", f"{name}-only-1", {"endpoints": endpoints})


async def test_only_rejected_services_fail_when_envoy_rejects_responses_of_two_types(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (kube, envoy, task):
        envoy.rejects, envoy.rejected_address = {cluster_of("b")}, "127.77.0.9"
        move(kube, "a", "127.77.0.9")  # its endpoints and the cluster of b are in flight together
        store(kube, "b")
        store(kube, "c")
        await until(lambda: task.done() or all((message_of(kube, "a"), message_of(kube, "b"))))
        assert not task.done(), task.exception()
        await until(lambda: message_of(kube, "c") == "")
        assert (message_of(kube, "a"), message_of(kube, "b")) == (
            f"no {cluster_of('a')}",
            f"no {cluster_of('b')}",
        )
        assert envoy.has["clusters"].keys() == {cluster_of("a"), cluster_of("c")}
        assert envoy.missing() == []


async def test_services_are_tried_again_when_envoy_had_rejected_what_it_accepted_before(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path) as (kube, envoy, task):
        envoy.rejects = {cluster_of("a")}
        move(kube, "a", "127.77.0.9")
        await until(lambda: task.done() or bool(message_of(kube, "a")))
        assert not task.done(), task.exception()
        envoy.rejects = set()
        store(kube, "b")
        await until(lambda: message_of(kube, "b") == "")
        await until(lambda: message_of(kube, "a") == "")
        assert "127.77.0.9" in str(envoy.has["endpoints"][cluster_of("a")])


async def test_a_service_is_accepted_when_envoy_has_rejected_the_first_cluster(tmp_path: Path) -> None:
    async with gateway(tmp_path, rejects={cluster_of("a")}) as (kube, _, task):
        store(kube, "b")
        await until(lambda: message_of(kube, "b") == "")
        assert message_of(kube, "a") == f"no {cluster_of('a')}"
        assert not task.done()


async def test_a_generation_is_reported_when_an_equal_service_is_planned_before_envoys_answer(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path) as (kube, envoy, _):
        store(kube, "b")
        await until(lambda: message_of(kube, "b") == "")
        envoy.hangs = True
        spec = route("a", [("only", 10_000)])["spec"]
        spec["backends"][0]["modelVersion"] = "a-only-v2"
        kube.change(kinds.ROUTE, "default", "a", {"spec": spec})
        await until(lambda: next_type(envoy) == "routes")
        add_unready_endpoint(kube, "a")
        move(kube, "b", "127.77.0.9")
        await until(lambda: envoy.unread == 2)  # the endpoints of b: the change of a is planned too
        envoy.hangs = False
        await until(lambda: entry_of(kube, "a")["acceptedGeneration"] == 2)


async def test_a_rejection_remains_reported_when_an_equal_service_is_planned(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (kube, envoy, _):
        envoy.rejects = {cluster_of("b")}
        store(kube, "b")
        await until(lambda: bool(message_of(kube, "b")))
        reported = entry_of(kube, "b")
        add_unready_endpoint(kube, "b")
        move(kube, "a", "127.77.0.9")
        await until(lambda: "127.77.0.9" in str(envoy.has["endpoints"]))  # the change of b is planned too
        kube.change(kinds.ROUTE, "default", "b", {"status": {"gateways": []}})
        await until(lambda: entry_of(kube, "b") == reported)


async def test_a_route_is_not_reported_as_accepted_when_it_lost_its_address_before_envoys_answer(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path) as (kube, envoy, _):
        envoy.hangs = True
        store(kube, "c")
        await until(lambda: next_type(envoy) == "clusters")
        spec = {**route("b", [("only", 10_000)])["spec"], "inference": "c"}
        kube.add(kinds.ROUTE, {**route("b", []), "spec": spec})
        await until(lambda: bool(message_of(kube, "c")))
        refused = entry_of(kube, "c")
        envoy.hangs = False
        await until(lambda: message_of(kube, "b") is not None)
        assert entry_of(kube, "c") == refused
