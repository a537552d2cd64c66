"""Components as Pods run them: asked by a kubelet, and ended by SIGTERM without a lost request.

Real processes with a real Envoy, each with a directory of its own, against the embedded API.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from autoscaler.signals.board import Reading
from autoscaler.signals.pages import Pages
from serving import errors
from serving.data_dir import DataDir
from serving.embedded.supervisor import restart_policy
from serving.kube import Kube
from serving.resources import kinds, leases
from serving.router.envoy.process.envoy_process import EnvoyProcess
from serving.settings import GatewaySettings
from tests.rig.control_plane.convergence import until
from tests.rig.machine import kept_sockets
from tests.rig.machine.addresses import own
from tests.rig.machine.ports import free_port
from tests.rig.servers.gateway import backend, endpoint_slice, route

pytestmark = pytest.mark.timeout(120)
QUICK, SLOW = own(100), own(101)
SLOW_SECONDS = 5.0
LEAVE_SECONDS = 1.0
SECONDS = aiohttp.ClientTimeout(total=10)


@dataclass
class Pod:
    """The containers of one Pod: processes that share a directory."""

    data_dir: DataDir
    name: str
    namespace: str
    session: aiohttp.ClientSession
    port: int = field(default_factory=free_port)
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    health_ports: dict[str, int] = field(default_factory=dict)

    def start(self, component: str) -> None:
        port = self.health_ports[component] = free_port()
        arguments = [component, "--data-dir", str(self.data_dir.root), "--health-port", str(port)]
        environment = {
            **os.environ,
            "SLIPWAY_GATEWAY__NAME": self.name,
            "SLIPWAY_GATEWAY__PORT": str(self.port),
            "SLIPWAY_GATEWAY__LEAVE_SECONDS": str(LEAVE_SECONDS),
            "SLIPWAY_GATEWAY__DRAIN_SECONDS": "20",
            "SLIPWAY_CONTROLLERS__LEASE_NAMESPACE": self.namespace,
            "SLIPWAY_CONTROLLERS__LEADER_ELECTION": "true",
        }
        self.processes[component] = subprocess.Popen(
            [sys.executable, "-m", "serving.app", "component", *arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    async def page(self, component: str, path: str) -> tuple[int, str]:
        """Return status and text of a health page; 0 while nothing listens."""
        url = f"http://127.0.0.1:{self.health_ports[component]}{path}"
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with self.session.get(url, timeout=SECONDS) as answer:
                return answer.status, await answer.text()
        return 0, ""

    async def until_ready(self, component: str) -> None:
        async with asyncio.timeout(40):
            while (await self.page(component, "/readyz"))[0] != 200:
                assert self.processes[component].poll() is None, "it has ended"
                await asyncio.sleep(0.05)

    def path(self, service: str) -> str:
        return f"/{self.namespace}/{service}/v2/x"

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self.port}{self.path(service)}"

    def stop(self, *components: str) -> None:
        """Send SIGTERM, as kubelet does to all containers at once."""
        for component in components:
            self.processes[component].send_signal(signal.SIGTERM)

    async def code(self, component: str) -> int:
        """Wait for the end of a process; return its exit code."""
        return await asyncio.to_thread(self.processes[component].wait, 30)

    def has_envoy(self) -> bool:
        return EnvoyProcess(self.data_dir, GatewaySettings(port=self.port)).running() is not None


@pytest.fixture
async def pod(kube: Kube, api_server: DataDir, tmp_path: Path) -> AsyncIterator[Pod]:
    name = f"pods-{uuid.uuid4().hex[:8]}"
    data_dir = DataDir(tmp_path / "data")
    data_dir.root.mkdir()
    data_dir.kubeconfig.write_text(api_server.kubeconfig.read_text())
    await kube.create(kinds.NAMESPACE, {"metadata": {"name": name}})
    async with aiohttp.ClientSession() as session:
        created = Pod(data_dir, name, name, session)
        try:
            yield created
        finally:
            for process in created.processes.values():
                process.kill()
                process.wait()
            envoy = EnvoyProcess(data_dir, GatewaySettings(port=created.port)).running()
            if envoy is not None:
                os.kill(envoy.pid, signal.SIGKILL)


@asynccontextmanager
async def replicas(kube: Kube, namespace: str) -> AsyncIterator[dict[str, int]]:
    """Run a quick and a slow replica, with their Routes; yield the counters of the slow one."""
    for service, address in (("quick", QUICK), ("slow", SLOW)):
        body = route(service, [("a", 10_000)], namespace=namespace)
        await kube.create(kinds.ROUTE, stored(body))
        await kube.create(
            kinds.ENDPOINT_SLICE, stored(endpoint_slice(f"{service}-a", [address], namespace=namespace))
        )
    async with backend(QUICK, 8080), backend(SLOW, 8080, seconds=SLOW_SECONDS) as counters:
        yield counters


def stored(body: dict[str, Any]) -> dict[str, Any]:
    kept = ("name", "namespace", "labels")
    return {**body, "metadata": {key: body["metadata"][key] for key in kept if key in body["metadata"]}}


async def delete_routes(kube: Kube) -> None:
    """Delete the Routes of other tests."""
    for other in (await kube.list(kinds.ROUTE)).items:
        await kube.delete(kinds.ROUTE, other["metadata"]["namespace"], other["metadata"]["name"])


async def lease_of(kube: Kube, pod: Pod) -> dict[str, Any] | None:
    try:
        return await kube.get(kinds.LEASE, pod.namespace, f"{leases.LEASE_PREFIX}{pod.name}")
    except errors.NotFound:
        return None


async def status_of(pod: Pod, service: str) -> int:
    async with pod.session.get(pod.url(service), timeout=SECONDS) as answer:
        await answer.read()
        return answer.status


class Client:
    """A connection that is kept until an answer closes it."""

    def __init__(self, port: int, path: str) -> None:
        self._port, self._path = port, path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def status(self) -> int:
        """Send a request; raise an OSError or an EOFError if the gateway loses it."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(b"GET %s HTTP/1.1\r\nHost: gateway\r\n\r\n" % self._path.encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        lines = [line.partition(b": ") for line in head.split(b"\r\n")]
        headers = {name: value for name, _, value in lines}
        await reader.readexactly(int(headers[b"content-length"]))
        if headers.get(b"connection") == b"close":
            self.close()
        return int(head.split(b" ")[1])

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def send_until(self, end: asyncio.Event, statuses: list[int]) -> None:
        while not end.is_set():
            statuses.append(await self.status())
            await asyncio.sleep(0.01)
        self.close()


async def is_refused(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        return False  # it waited in the queue of the listener, which has closed since
    writer.close()
    return False


def received(reading: Reading) -> float:
    """Return the received requests of the quick replica."""
    return sum(counts.received for key, counts in reading.counts.items() if key.name == "quick-a")


async def test_gateway_is_live_and_ready_and_its_lease_names_its_pages(kube: Kube, pod: Pod) -> None:
    async with replicas(kube, pod.namespace):
        pod.start("gateway")
        await pod.until_ready("gateway")
        assert await status_of(pod, "quick") == 200
        assert await pod.page("gateway", "/livez") == (200, "ok\n")
        assert (await pod.page("gateway", "/metrics"))[0] == 404
        async with asyncio.timeout(20):
            while (lease := await lease_of(kube, pod)) is None:  # a gateway is ready before its first Lease
                await asyncio.sleep(0.05)
        pages = Pages(lambda: leases.pages([lease], frozenset({pod.name})))
        read = await pages.read()
        await pages.close()
        assert read.problems == {}
        assert [(reading.gateway, received(reading)) for reading in read.readings] == [(pod.name, 1)]


async def test_gateway_is_ready_when_there_are_no_routes(kube: Kube, pod: Pod) -> None:
    await delete_routes(kube)
    pod.start("gateway")
    await pod.until_ready("gateway")
    assert await status_of(pod, "quick") == 404


async def test_gateway_is_ready_when_its_routes_have_no_backends(kube: Kube, pod: Pod) -> None:
    await delete_routes(kube)
    await kube.create(kinds.ROUTE, stored(route("starting", [], namespace=pod.namespace)))
    pod.start("gateway")
    await pod.until_ready("gateway")
    assert await status_of(pod, "starting") == 503


async def test_no_request_fails_when_a_gateway_gets_sigterm_twice(kube: Kube, pod: Pod) -> None:
    statuses: list[int] = []
    has_left = asyncio.Event()
    async with replicas(kube, pod.namespace) as counters:
        pod.start("gateway")
        await pod.until_ready("gateway")
        path = pod.path("quick")
        idle = Client(pod.port, path)
        assert await idle.status() == 200
        clients = [
            asyncio.create_task(Client(pod.port, path).send_until(has_left, statuses)) for _ in range(4)
        ]
        await until(lambda: len(statuses) > 20)
        in_flight = asyncio.create_task(status_of(pod, "slow"))
        await until(lambda: counters["active"] == 1)
        before = len(statuses)
        pod.stop("gateway")
        async with asyncio.timeout(LEAVE_SECONDS):
            while (await pod.page("gateway", "/readyz"))[0] == 200:
                await asyncio.sleep(0.01)
        assert await pod.page("gateway", "/readyz") == (503, "not ready: it is draining\n")
        pod.stop("gateway")
        assert await pod.page("gateway", "/livez") == (200, "ok\n")
        await until(lambda: len(statuses) > before + 20, "it serves while it is leaving")
        has_left.set()  # kube-proxy knows that the Pod ends
        await asyncio.gather(*clients)
        assert set(statuses) == {200}
        async with asyncio.timeout(20):
            while not await is_refused(pod.port):
                await asyncio.sleep(0.01)
        assert not in_flight.done(), "it ends after the listeners are closed"
        assert await lease_of(kube, pod) is None
        assert await idle.status() == 200
        assert await in_flight == 200
        assert await pod.code("gateway") == 0
        route = await kube.get(kinds.ROUTE, pod.namespace, "quick")
        assert pod.name not in {entry["name"] for entry in (route.get("status") or {}).get("gateways") or []}
    assert not pod.has_envoy()


async def test_activator_ends_after_the_envoy_of_its_pod(kube: Kube, pod: Pod) -> None:
    async with replicas(kube, pod.namespace) as counters:
        for component in ("gateway", "activator"):
            pod.start(component)
        for component in ("gateway", "activator"):
            await pod.until_ready(component)
        in_flight = asyncio.create_task(status_of(pod, "slow"))
        await until(lambda: counters["active"] == 1)
        pod.stop("activator", "gateway")
        assert await pod.code("activator") == 0
        assert in_flight.done()
        assert await in_flight == 200
        assert not pod.has_envoy()
        assert await pod.code("gateway") == 0


async def test_gateway_ends_with_the_next_envoy_when_its_envoy_was_just_killed(pod: Pod) -> None:
    pod.start("gateway")
    await pod.until_ready("gateway")
    envoy = EnvoyProcess(pod.data_dir, GatewaySettings(port=pod.port)).running()
    assert envoy is not None
    os.kill(envoy.pid, signal.SIGKILL)
    pod.stop("gateway")
    assert await pod.code("gateway") == 0
    assert not pod.has_envoy()


async def test_new_connections_wait_for_the_next_gateway_when_its_container_is_killed(
    kube: Kube, pod: Pod
) -> None:
    async with replicas(kube, pod.namespace):
        for component in ("gateway", "activator"):
            pod.start(component)
        for component in ("gateway", "activator"):
            await pod.until_ready(component)
        await kept_sockets.until_shared(*(process.pid for process in pod.processes.values()), 1)
        for _ in range(2):
            envoy = EnvoyProcess(pod.data_dir, GatewaySettings(port=pod.port)).running()
            assert envoy is not None
            pod.processes["gateway"].kill()  # with a container, all of its processes end
            os.kill(envoy.pid, signal.SIGKILL)
            await pod.code("gateway")
            clients = [Client(pod.port, pod.path("quick")) for _ in range(20)]
            waiting = [asyncio.create_task(client.status()) for client in clients]
            await asyncio.sleep(0.1)
            assert not any(task.done() for task in waiting)
            pod.start("gateway")
            assert set(await asyncio.gather(*waiting)) == {200}
            for client in clients:
                client.close()
        pod.stop("gateway")
        assert await pod.code("gateway") == 0
        async with asyncio.timeout(SECONDS.total):
            while not await is_refused(pod.port):
                await asyncio.sleep(0.05)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace of processes")
def test_first_process_of_a_container_ends_by_sigterm_while_it_reads_its_configuration(
    tmp_path: Path,
) -> None:
    configuration = tmp_path / "config.yaml"
    os.mkfifo(configuration)
    options = ["--data-dir", str(tmp_path), "--config", str(configuration), "--health-port", str(free_port())]
    component = [sys.executable, "-m", "serving.app", "component", "activator", *options]
    with (
        subprocess.Popen(["unshare", "--fork", "--pid", "--mount-proc", *component]) as container,
        configuration.open("wb"),  # returns once the component reads
    ):
        (first,) = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        assert container.wait(10) == 0


def test_reason_is_the_last_line_when_the_health_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        options = ["--data-dir", str(tmp_path), "--health-port", port]
        component = [sys.executable, "-m", "serving.app", "component", "controllers", *options]
        ended = subprocess.run(component, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == restart_policy.GIVES_UP
    assert ended.stderr.splitlines()[-1].startswith(f"error: --health-port {port} on 127.0.0.1: ")


async def test_gateway_ends_when_it_never_reached_the_api(pod: Pod) -> None:
    pod.data_dir.kubeconfig.unlink()
    pod.start("gateway")
    async with asyncio.timeout(30):
        while not (await pod.page("gateway", "/readyz"))[1].startswith("not ready: Envoy or the API"):
            await asyncio.sleep(0.05)
    pod.stop("gateway")
    assert await pod.code("gateway") == 0
    assert not pod.has_envoy()


async def test_controllers_are_ready_once_their_watches_have_listed(kube: Kube, pod: Pod) -> None:
    kubeconfig = pod.data_dir.kubeconfig.read_text()
    pod.data_dir.kubeconfig.unlink()
    pod.start("controllers")
    async with asyncio.timeout(30):
        while (await pod.page("controllers", "/livez"))[0] != 200:
            await asyncio.sleep(0.05)
    assert await pod.page("controllers", "/readyz") == (503, "not ready: it is starting\n")
    pod.data_dir.kubeconfig.write_text(kubeconfig)
    await pod.until_ready("controllers")
    pod.stop("controllers")
    assert await pod.code("controllers") == 0
