"""From applied Inferences to ready ones whose Routes Envoy has accepted: duration, cost, and the cost of
idling.

API, controllers, gateway and Envoy are the real processes; the hollow node (`rig/hollow_node`) writes the
objects of a node and starts no process. One nginx answers for all replicas, so every revision is proven
through the gateway. N, N/2 and N/4 Inferences start cold, each number on a fresh data directory: the cost
must be linear in the number, and the cost of one change must not depend on the number of stored objects.
"""

import argparse
import asyncio
import contextlib
import gc
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rig import interrupts
from rig.data_plane import proxies
from rig.harness import Bar, report

from serving import clock, errors
from serving.cli.machine.component import COLLECT_AFTER
from serving.data_dir import DataDir
from serving.kube import Informer, Kube, connect
from serving.resources import conditions, kinds, names
from serving.router.envoy.process.envoy_process import EnvoyProcess
from serving.router.gateway import stop_everything
from serving.settings import DEFAULTS

BAR_SECONDS = 60.0
BAR_IDLE_PERCENT = 5.0
BAR_RATIO = 1.5
"""Highest cost of one Inference of N, relative to N/4; both contain a constant start-up cost."""
IDLE_SECONDS = 15.0
CHANGES = 240
"""Some 15 s of changes, as long as idling is measured: both contain the same share of periodic work."""
AT_ONCE = 16
LIMIT_SECONDS = 600.0
ARMS = ("stable", "canary")
T = TypeVar("T")


@dataclass(frozen=True)
class ControlPlane:
    """One set of processes, by name, and a client of their API."""

    kube: Kube
    pids: Mapping[str, int]
    ready: Mapping[str, int]
    """Inference to the newest generation that was Ready and accepted; kept by a watch."""

    def reached(self, name: str, generation: int) -> bool | None:
        """Return True if this generation is Ready and accepted, else None."""
        return self.ready.get(name, 0) >= generation or None

    def cpu(self) -> dict[str, float]:
        """CPU seconds of each process so far, all threads, to the nanosecond."""
        return {name: cpu_seconds(pid) for name, pid in self.pids.items()}


def cpu_seconds(pid: int) -> float:
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def spent(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {name: round(after[name] - before[name], 3) for name in before}


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[int]:
    started = subprocess.Popen([sys.executable, *arguments], stdin=subprocess.DEVNULL)
    try:
        yield started.pid
    finally:
        proxies.stop(started)


@contextlib.contextmanager
def replicas(folder: Path, data_dir: DataDir, address: str) -> Iterator[None]:
    """A server that answers every request with 200 at the Unix socket of the hollow replicas."""
    port = proxies.free_port()
    data_dir.pod_sockets.mkdir(parents=True)
    socket = data_dir.pod_sockets / f"{address}:{names.RUNTIME_PORT}"
    body = (
        f"server {{ listen unix:{socket} backlog=4096; listen 127.0.0.1:{port}; "
        'location / { return 200 "{}"; } }'
    )
    with proxies.nginx(folder, f"{proxies.PROXY_CORE},{proxies.LOAD_CORE}", port, "replicas", body):
        yield


@contextlib.asynccontextmanager
async def machine(number: int) -> AsyncIterator[ControlPlane]:
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-controllers-")))
        data_dir = DataDir(folder / "data")
        ports = proxies.free_port(), proxies.free_port()
        address = f"127.78.{ports[0] % 250}.{number + 1}"
        stack.enter_context(replicas(folder, data_dir, address))
        common = ["--data-dir", str(data_dir.root)]
        data_dir.config.write_text(f"api: {{port: {ports[0]}}}\ngateway: {{port: {ports[1]}}}\n")
        settings = replace(DEFAULTS, gateway=replace(DEFAULTS.gateway, port=ports[1], drain_seconds=0.0))
        stack.push_async_callback(stop_everything, data_dir, settings)
        pids = {}
        for name in ("api", "controllers", "gateway"):
            pids[name] = stack.enter_context(process("-m", "serving.app", "component", name, *common))
        kube = await stack.enter_async_context(await connected(data_dir))
        node = Path(__file__).parent / "rig" / "hollow_node.py"
        pids["node"] = stack.enter_context(
            process(str(node), "--data-dir", str(data_dir.root), "--address", address)
        )
        await models(kube, folder)
        pids["envoy"] = await envoy_pid(data_dir)
        inferences = Informer(kube, kinds.INFERENCE)
        ready: dict[str, int] = {}
        inferences.on_change(lambda _, after: ready.update(readiness(after)))
        watching = asyncio.ensure_future(inferences.run())
        stack.callback(watching.cancel)
        await inferences.synced.wait()
        yield ControlPlane(kube, pids, ready)


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


def inference(number: int, weight: int) -> dict[str, Any]:
    weights = zip(ARMS, (weight, 100 - weight), strict=True)
    return {
        "metadata": {"name": f"service-{number:04}", "namespace": "default"},
        "spec": {
            "framework": "sklearn",
            "predictors": [
                {"name": arm, "modelVersion": f"model-{arm}", "trafficWeight": share}
                for arm, share in weights
            ],
        },
    }


def readiness(inference: dict[str, Any] | None) -> dict[str, int]:
    """Return name and generation if the Inference is Ready: proven, and accepted by every gateway."""
    if inference is None or not (
        conditions.is_true(inference, "Ready") and conditions.is_true(inference, "RoutesReady")
    ):
        return {}
    return {inference["metadata"]["name"]: inference["status"]["observedGeneration"]}


async def fill(on: ControlPlane, count: int) -> dict[str, Any]:
    """Apply all Inferences, and wait for all."""
    before, started = on.cpu(), clock.monotonic()
    first = int((await on.kube.list(kinds.NAMESPACE)).resource_version)
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with limit:
            await on.kube.apply(kinds.INFERENCE, inference(number, 90))

    await asyncio.gather(*(one(number) for number in range(count)))
    applied = clock.monotonic() - started
    await until(lambda: len(on.ready) >= count or None)
    seconds = clock.monotonic() - started
    await accepted(on.kube, count)
    cpu = spent(before, on.cpu())
    writes = int((await on.kube.list(kinds.NAMESPACE)).resource_version) - first
    return {
        "inferences": count,
        "seconds": round(seconds, 2),
        "appliedSeconds": round(applied, 2),
        "cpuSeconds": cpu,
        "writes": writes,
        "writesPerInference": round(writes / count, 1),
        "msPerInference": round(1000 * seconds / count, 2),
        "cpuMsPerInference": round(1000 * sum(cpu.values()) / count, 2),
    }


async def accepted(kube: Kube, count: int) -> None:
    """Check the accepted versions in the Routes themselves; Ready already implies them."""
    routes = (await kube.list(kinds.ROUTE)).items
    versions = [
        gateway["acceptedGeneration"] >= route["metadata"]["generation"] and bool(route["spec"]["segments"])
        for route in routes
        for gateway in (route.get("status") or {}).get("gateways") or []
    ]
    if len(versions) != count or not all(versions):
        raise RuntimeError(f"{sum(versions)} of {count} Routes are accepted")


async def settle(on: ControlPlane) -> None:
    """Wait until only Lease renewals write."""
    deadline = clock.monotonic() + LIMIT_SECONDS
    version = 0
    while clock.monotonic() < deadline:
        now = int((await on.kube.list(kinds.NAMESPACE)).resource_version)
        if now - version <= 2:
            return
        version = now
        await asyncio.sleep(2.0)
    raise RuntimeError("writes do not end")


async def idle(on: ControlPlane, seconds: float) -> dict[str, float]:
    """Return the percent of one core of each process."""
    before, started = on.cpu(), clock.monotonic()
    await asyncio.sleep(seconds)
    took = clock.monotonic() - started
    return {name: round(100 * cpu / took, 2) for name, cpu in spent(before, on.cpu()).items()}


async def change(on: ControlPlane, count: int, resting: Mapping[str, float]) -> dict[str, Any]:
    """Change the weights of Inferences one by one; each waits until Envoy has accepted the change.

    Args:
        on: the processes.
        count: Inferences that are stored.
        resting: percent of a core that each process takes without changes.
    """
    before, started = on.cpu(), clock.monotonic()
    first = int((await on.kube.list(kinds.NAMESPACE)).resource_version)
    for step in range(CHANGES):
        number = step * count // CHANGES
        written = await on.kube.apply(kinds.INFERENCE, inference(number, 50))
        name, generation = written["metadata"]["name"], written["metadata"]["generation"]
        await until(partial(on.reached, name, generation))
    took = clock.monotonic() - started
    cpu = spent(before, on.cpu())
    writes = int((await on.kube.list(kinds.NAMESPACE)).resource_version) - first
    own = {name: max(0.0, seconds - resting[name] / 100 * took) for name, seconds in cpu.items()}
    return {
        "stored": count,
        "ms": round(1000 * took / CHANGES, 2),
        "writesPerChange": round(writes / CHANGES, 1),
        "cpuMs": {name: round(1000 * seconds / CHANGES, 2) for name, seconds in own.items()},
        "cpuMsTotal": round(1000 * sum(own.values()) / CHANGES, 2),
    }


async def main(count: int) -> None:
    sizes = (count // 4, count // 2, count)
    filled, changed = [], []
    idling: dict[str, float] = {}
    for number, size in enumerate(sizes):
        async with machine(number) as on:
            filled.append(await fill(on, size))
            print(filled[-1], file=sys.stderr, flush=True)
            await settle(on)
            idling = await idle(on, IDLE_SECONDS)
            changed.append(await change(on, size, idling))
            print(changed[-1], file=sys.stderr, flush=True)
    linear = round(filled[-1]["cpuMsPerInference"] / filled[0]["cpuMsPerInference"], 2)
    constant = round(changed[-1]["cpuMsTotal"] / changed[0]["cpuMsTotal"], 2)
    own = round(sum(idling.values()), 2)
    report(
        "controllers",
        {
            "cold": filled,
            "idlePercentOfACore": idling,
            "change": changed,
            "cpuPerInferenceRatio": linear,
            "cpuPerChangeRatio": constant,
        },
        [
            Bar(
                f"seconds until {count} Inferences of two predictors are ready",
                filled[-1]["seconds"],
                BAR_SECONDS,
                filled[-1]["seconds"] <= BAR_SECONDS,
            ),
            Bar(
                "idle, all processes together, percent of a core",
                own,
                BAR_IDLE_PERCENT,
                own <= BAR_IDLE_PERCENT,
            ),
            Bar(
                f"CPU per Inference at {count}, as a multiple of that at {count // 4}",
                linear,
                BAR_RATIO,
                linear <= BAR_RATIO,
            ),
            Bar(
                f"CPU of one change with {count} stored, as a multiple of that with {count // 4}",
                constant,
                BAR_RATIO,
                constant <= BAR_RATIO,
            ),
        ],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="150 Inferences instead of 1,000")
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    gc.set_threshold(*COLLECT_AFTER)  # this process reads all changes of Inferences beside the measured ones
    interrupts.run(main(150 if options.quick else options.count))
