"""The processes that `controllers.py` measures: on this machine alone, or beside a real control plane."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from rig.data_plane import proxies
from serving import clock, errors
from serving.data_dir import DataDir
from serving.kube import Informer, Kube, connect
from serving.resources import kinds, names
from serving.resources.kinds import Kind
from serving.resources.kubernetes import conditions
from serving.router.envoy.process.envoy_process import EnvoyProcess
from serving.router.gateway import stop_everything
from serving.settings import DEFAULTS

LIMIT_SECONDS = 600.0
ARMS = ("stable", "canary")
CLUSTER_PROCESSES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
T = TypeVar("T")


@dataclass(frozen=True)
class ControlPlane:
    """One set of processes, by name, and a client of their API."""

    kube: Kube
    pids: Mapping[str, int]
    """Slipway's processes, and the hollow node's."""
    cluster_pids: Mapping[str, int]
    """The processes of a real control plane."""
    ready: Mapping[str, int]
    """Inference to the newest generation that was Ready and accepted; kept by a watch."""

    def reached(self, name: str, generation: int) -> bool | None:
        """Return True if this generation is Ready and accepted, else None."""
        return self.ready.get(name, 0) >= generation or None

    @property
    def background_writes(self) -> int:
        """Most writes in two seconds without changes: a cluster renews Leases of its own."""
        return 8 if self.cluster_pids else 2

    def cpu(self) -> dict[str, float]:
        """CPU seconds of each process so far, all threads, to the nanosecond."""
        return {name: cpu_seconds(pid) for name, pid in {**self.pids, **self.cluster_pids}.items()}

    def own(self, figures: Mapping[str, float]) -> float:
        """Return the sum over Slipway's processes, and on one machine over all."""
        return sum(figures[name] for name in self.pids if not (self.cluster_pids and name == "node"))

    def memory(self) -> dict[str, int]:
        """Resident MiB of each process."""
        return {name: resident_mib(pid) for name, pid in {**self.pids, **self.cluster_pids}.items()}


def cpu_seconds(pid: int) -> float:
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def resident_mib(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") >> 20


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[int]:
    started = subprocess.Popen([sys.executable, *arguments], stdin=subprocess.DEVNULL)
    try:
        yield started.pid
    finally:
        proxies.stop(started)


@contextlib.contextmanager
def replicas(folder: Path, listen: str) -> Iterator[None]:
    """A server that answers every request with 200 at the address of the hollow replicas."""
    port = proxies.free_port()
    body = (
        f"server {{ listen {listen} backlog=4096; listen 127.0.0.1:{port}; "
        'location / { return 200 "{}"; } }'
    )
    with proxies.nginx(folder, f"{proxies.PROXY_CORE},{proxies.LOAD_CORE}", port, "replicas", body):
        yield


@contextlib.asynccontextmanager
async def machine(number: int) -> AsyncIterator[ControlPlane]:
    """Run a control plane of one machine, on a data directory of its own."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-controllers-")))
        data_dir = DataDir(folder / "data")
        port = proxies.free_port()
        address = f"127.78.{port % 250}.{number + 1}"
        data_dir.pod_sockets.mkdir(parents=True)
        socket = data_dir.pod_sockets / f"{address}:{names.RUNTIME_PORT}"
        stack.enter_context(replicas(folder, f"unix:{socket}"))
        started = run(stack, data_dir, f"api: {{port: {port}}}\n", ("api", "controllers", "gateway"))
        kube = await stack.enter_async_context(await connected(data_dir))
        node = Path(__file__).parent / "hollow_node.py"
        started["node"] = stack.enter_context(
            process(str(node), "--data-dir", str(data_dir.root), "--address", address)
        )
        yield await prepared(stack, kube, data_dir, started, {})


@contextlib.asynccontextmanager
async def cluster(kubeconfig: Path) -> AsyncIterator[ControlPlane]:
    """Run controllers and a gateway beside a real control plane, with a hollow kubelet."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-controllers-")))
        data_dir = DataDir(folder / "data")
        data_dir.root.mkdir()
        shutil.copyfile(kubeconfig, data_dir.kubeconfig)
        kube = await stack.enter_async_context(await connected(data_dir))
        await install_kinds(kube)
        address = own_address()
        stack.enter_context(replicas(folder, f"{address}:{names.RUNTIME_PORT}"))
        node = Path(__file__).parent / "hollow_kubelet.py"
        arguments = (str(node), "--kubeconfig", str(kubeconfig), "--address", address)
        started = {"node": stack.enter_context(process(*arguments))}
        started |= run(stack, data_dir, "", ("controllers", "gateway"))
        theirs = {name: pid for name in CLUSTER_PROCESSES if (pid := local_pid(name)) is not None}
        yield await prepared(stack, kube, data_dir, started, theirs)


def own_address() -> str:
    """Return an address of this machine that an API accepts as that of a Pod: none of 127.0.0.0/8."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: the kernel chooses the source address
        address: str = probe.getsockname()[0]
        return address


def local_pid(name: str) -> int | None:
    """Return the pid of the first process of this machine that runs this program."""
    for entry in Path("/proc").glob("[0-9]*/exe"):
        with contextlib.suppress(OSError):
            if entry.readlink().name == name:
                return int(entry.parent.name)
    return None


async def install_kinds(kube: Kube) -> None:
    """Apply the definitions of Slipway's kinds, and wait until the API serves them."""
    folder = Path(__file__).parents[2] / "manifests" / "install" / "crds"
    for file in sorted(folder.glob("*.yaml")):
        definition = yaml.safe_load(file.read_text())
        await kube.apply(DEFINITION, definition)
    deadline = clock.monotonic() + LIMIT_SECONDS
    while clock.monotonic() < deadline:
        with contextlib.suppress(errors.NotFound):
            for kind in (kinds.INFERENCE, kinds.ROUTE, kinds.AUTOSCALER, kinds.MODEL_VERSION):
                await kube.list(kind)
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("the API does not serve Slipway's kinds")


def run(
    stack: contextlib.AsyncExitStack, data_dir: DataDir, config: str, components: Iterable[str]
) -> dict[str, int]:
    """Run components until the stack ends; return their pids."""
    port = proxies.free_port()
    data_dir.config.write_text(f"{config}gateway: {{port: {port}}}\n")
    settings = replace(DEFAULTS, gateway=replace(DEFAULTS.gateway, port=port, drain_seconds=0.0))
    stack.push_async_callback(stop_everything, data_dir, settings)
    arguments = ("--data-dir", str(data_dir.root))
    return {
        name: stack.enter_context(process("-m", "serving.app", "component", name, *arguments))
        for name in components
    }


async def prepared(
    stack: contextlib.AsyncExitStack,
    kube: Kube,
    data_dir: DataDir,
    started: Mapping[str, int],
    theirs: Mapping[str, int],
) -> ControlPlane:
    """Create the models, and watch the Inferences until the stack ends."""
    await models(kube, data_dir.root.parent)
    pids = {**started, "envoy": await envoy_pid(data_dir)}
    inferences = Informer(kube, kinds.INFERENCE)
    ready: dict[str, int] = {}
    inferences.on_change(lambda _, after: ready.update(readiness(after)))
    watching = asyncio.ensure_future(inferences.run())
    stack.callback(watching.cancel)
    await inferences.synced.wait()
    return ControlPlane(kube, pids, theirs, ready)


async def connected(data_dir: DataDir) -> Kube:
    deadline = clock.monotonic() + LIMIT_SECONDS
    while True:
        try:
            kube = await connect(data_dir.kubeconfig, component="bench")
            await kube.list(kinds.NAMESPACE)
        except (errors.UserError, errors.Unavailable):
            if clock.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
        else:
            return kube


async def envoy_pid(data_dir: DataDir) -> int:
    process = EnvoyProcess(data_dir, DEFAULTS.gateway)
    return await until(lambda: who.pid if (who := process.running()) is not None else None)


async def until(look: Callable[[], T | None]) -> T:
    """Poll until the function returns a value."""
    deadline = clock.monotonic() + LIMIT_SECONDS
    while (result := look()) is None:
        if clock.monotonic() > deadline:
            raise RuntimeError("it took too long")
        await asyncio.sleep(0.02)
    return result


async def models(kube: Kube, folder: Path) -> None:
    """Create two ModelVersions with real images, which all Inferences share."""
    for arm in ARMS:
        source = folder / arm
        source.mkdir()
        (source / "model.txt").write_text(arm)
        source.joinpath("slipway.json").write_text('{"framework": "sklearn"}')
        body = {
            "metadata": {"name": f"model-{arm}", "namespace": "default"},
            "spec": {"modelName": "model", "source": {"path": str(source)}},
        }
        await kube.apply(kinds.MODEL_VERSION, body)
        deadline = clock.monotonic() + LIMIT_SECONDS
        while not conditions.is_true(await kube.get(kinds.MODEL_VERSION, "default", f"model-{arm}"), "Ready"):
            if clock.monotonic() > deadline:
                raise RuntimeError(f"model-{arm} is not ready")
            await asyncio.sleep(0.05)


def readiness(inference: dict[str, Any] | None) -> dict[str, int]:
    """Return name and generation if the Inference is Ready: proven, and accepted by every gateway."""
    if inference is None or not (
        conditions.is_true(inference, "Ready") and conditions.is_true(inference, "RoutesReady")
    ):
        return {}
    return {inference["metadata"]["name"]: inference["status"]["observedGeneration"]}
