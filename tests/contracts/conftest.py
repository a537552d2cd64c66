"""The contract of the Kubernetes API, tested on the embedded server or a cluster, and on the API in memory.

`KUBECONFIG=... make test-cluster` sets `SLIPWAY_CONTRACT_KUBECONFIG`; the suite then installs our CRDs in the
cluster and uses its own namespaces, whose end it awaits. Without it, the embedded server is started.
`FakeKube`, on which the controllers are tested, passes the same tests, except those marked
`server_only(REASON)`.
"""

import asyncio
import ipaddress
import os
import shutil
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from autoscaler import controller as autoscaler
from serving.controllers.run import run
from serving.data_dir import DataDir
from serving.kube import Kube, connect
from serving.objects import Object
from serving.resources import catalog, definitions, kinds
from serving.settings import DEFAULTS, Settings
from serving.system.readiness import Readiness
from tests.fakes.kube import FakeKube
from tests.rig.control_plane import discovery, installation, namespaces
from tests.rig.control_plane.convergence import running
from tests.rig.control_plane.job_definitions import CRD
from tests.rig.control_plane.played_node import played_node, played_pods
from tests.rig.control_plane.recorded_requests import source_address
from tests.rig.control_plane.workload_controllers import workloads
from tests.rig.machine.addresses import own

EMBEDDED_ADDRESS = own(121)
NOT_IN_MEMORY = pytest.StashKey[Counter[str]]()


@pytest.fixture(scope="session")
def contract_kubeconfig(request: pytest.FixtureRequest) -> Path:
    """The server under test: a cluster's kubeconfig, or the embedded server's."""
    if cluster := os.environ.get("SLIPWAY_CONTRACT_KUBECONFIG"):
        return Path(cluster)
    data_dir: DataDir = request.getfixturevalue("api_server")
    return data_dir.kubeconfig


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kube" in metafunc.fixturenames:
        alone = metafunc.definition.get_closest_marker("server_only")
        metafunc.parametrize("kube", ["server"] if alone else ["server", "memory"], indirect=True)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collect the reasons of tests that are not run on the API in memory."""
    markers = [item.get_closest_marker("server_only") for item in session.items]
    reasons = Counter(marker.args[0] for marker in markers if marker)
    session.config.stash[NOT_IN_MEMORY] = reasons


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for reason, number in config.stash.get(NOT_IN_MEMORY, Counter()).items():
        terminalreporter.write_line(f"contract: {number} tests are not run on the API in memory: {reason}")


@pytest.fixture
async def kube(request: pytest.FixtureRequest, cluster_definitions: None) -> AsyncIterator[Kube]:
    if request.param == "memory":
        yield FakeKube("slipway-contract")
        return
    async with await connect(request.getfixturevalue("contract_kubeconfig"), component="contract") as client:
        if "SLIPWAY_CONTRACT_KUBECONFIG" in os.environ:
            for definition in catalog.DEFINITIONS:
                await client.apply(CRD, definitions.crd(definition))
        yield client


@pytest.fixture(scope="session")
def cluster_definitions() -> Iterator[None]:
    """Delete the CRDs of Slipway after the last test, unless the cluster had them before the first."""
    cluster = os.environ.get("SLIPWAY_CONTRACT_KUBECONFIG")
    if cluster is None:
        yield
        return
    existing = asyncio.run(own_definitions(Path(cluster)))
    yield
    asyncio.run(delete_definitions(Path(cluster), existing))


async def own_definitions(kubeconfig: Path) -> frozenset[str]:
    """Return the names of the CRDs of Slipway on a cluster."""
    async with await connect(kubeconfig, component="contract") as client:
        listed = [crd["metadata"]["name"] for crd in (await client.list(CRD)).items]
    return frozenset(listed) & {f"{kind.plural}.{kind.group}" for kind in kinds.OWN}


async def delete_definitions(kubeconfig: Path, kept: frozenset[str]) -> None:
    """Delete the CRDs of Slipway that are not `kept`, and wait until they are gone, as their objects are."""
    for name in await own_definitions(kubeconfig) - kept:
        async with await connect(kubeconfig, component="contract") as client:
            await client.delete(CRD, None, name)
    async with asyncio.timeout(60):
        while await own_definitions(kubeconfig) - kept:
            await asyncio.sleep(0.5)


@pytest.fixture(scope="session")
def server_namespaces(contract_kubeconfig: Path, cluster_definitions: None) -> Iterator[list[str]]:
    """The namespaces that tests made on the server; fail unless all have ended after the last test.

    The CRDs are deleted after the namespaces.
    """
    names: list[str] = []
    yield names
    asyncio.run(namespaces.until_gone(contract_kubeconfig, names))


@pytest.fixture
async def namespace(kube: Kube, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    name = f"contract-{uuid.uuid4().hex[:8]}"
    if not isinstance(kube, FakeKube):
        request.getfixturevalue("server_namespaces").append(name)
    await kube.create(kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await namespaces.delete(kube, name)


@pytest.fixture
def controller_settings() -> Settings:
    """Return the settings of the controllers; a module with others has its own fixture of this name."""
    return DEFAULTS


@pytest.fixture
def component_kubeconfig(contract_kubeconfig: Path) -> Path:
    """Return the kubeconfig of components; a module with a proxy before the API has its own fixture."""
    return contract_kubeconfig


@pytest.fixture
async def controllers(
    component_kubeconfig: Path, tmp_path: Path, controller_settings: Settings
) -> AsyncIterator[None]:
    """All controllers in this process, with a separate model store."""
    data = DataDir(tmp_path / "data")
    data.root.mkdir(mode=0o700)
    shutil.copy(component_kubeconfig, data.kubeconfig)
    task = asyncio.ensure_future(run(data, controller_settings, Readiness(), autoscaler.prepared))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Machine(NamedTuple):
    """A machine whose kubelet is played."""

    scheduler: str
    """`schedulerName` of the Pods that run there, which is the name of the machine's Node on a cluster."""
    address: str
    """Of all Pods, and of this machine."""


@pytest.fixture
def pod_address() -> str:
    """Return the address of all Pods on the embedded API; a module whose Pods are servers has its own."""
    return EMBEDDED_ADDRESS


@pytest.fixture
async def machine(
    kube: Kube, namespace: str, contract_kubeconfig: Path, controller_settings: Settings, pod_address: str
) -> AsyncIterator[Machine]:
    """Run the Pods of the namespace, in the API alone.

    A cluster's own controllers make Pods and EndpointSlices; on the embedded API those of Slipway do.
    """
    if "SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ:
        machine = Machine("default-scheduler", pod_address)
        # At the end no controller may make another Pod, which nobody would remove.
        async with played_pods(kube, namespace, *machine), running(workloads(kube, controller_settings)):
            yield machine
        return
    machine = Machine(f"played-{namespace}", await source_address(contract_kubeconfig))
    if ipaddress.ip_address(machine.address).is_loopback:
        pytest.skip(f"the API server is at the loopback address {machine.address}: no EndpointSlice has one")
    async with played_node(kube, namespace, *machine):
        yield machine


@asynccontextmanager
async def applied(kube: Kube, objects: list[Object]) -> AsyncIterator[list[Object]]:
    """Apply all objects; those outside of namespaces are deleted at the end."""
    for obj in objects:
        await kube.apply(await discovery.kind_of(kube, obj), obj)
    yield objects
    for obj in objects:
        if "namespace" not in obj["metadata"] and obj["kind"] != "Namespace":
            await kube.delete(await discovery.kind_of(kube, obj), None, obj["metadata"]["name"])


@pytest.fixture
async def installed(kube: Kube, namespace: str) -> AsyncIterator[list[Object]]:
    """The installation for all namespaces, without replicas."""
    async with applied(kube, installation.renamed(installation.objects(), namespace)) as objects:
        yield objects


@pytest.fixture
async def installed_for_team(kube: Kube, namespace: str, team: str) -> AsyncIterator[list[Object]]:
    """The installation that watches the namespace `team` alone, without replicas."""
    made = installation.rendered(installation.OVERLAYS / "namespace")
    async with applied(kube, installation.renamed(made, namespace, team)) as objects:
        yield objects


@pytest.fixture
async def team(kube: Kube, namespace: str) -> AsyncIterator[str]:
    """A namespace of users, beside that of the installation."""
    name = f"{namespace}-team"
    await kube.create(kinds.NAMESPACE, {"metadata": {"name": name}})
    yield name
    await namespaces.delete(kube, name)
