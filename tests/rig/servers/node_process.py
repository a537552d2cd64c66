"""A node agent in a process of its own, which tests start, kill and restart, and Pods for it."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.kubelet.records import PodDirectory
from serving.embedded.kubelet.zygote.eligibility import ZygoteKey
from serving.embedded.kubelet.zygote.pool import name_of
from serving.kube import Kube, connect
from serving.resources import kinds
from serving.settings import DEFAULTS
from serving.system import processes
from serving.system.network.kept_sockets import KeptSockets
from tests.rig.servers.preloaded import PreloadedProcess

ROOT = Path(__file__).parents[3]
PYTHON = "slipway.dev/runtimes/python"
SCRIPT = "slipway.dev/runtimes/script"
"""Equal to `PYTHON` for the arguments of the tests, and can be forked."""
SLOW = "slipway.dev/runtimes/slow"
"""Equal to `SCRIPT`, but its imports take a second."""
IMPORT_SECONDS = 3.0
"""The node's longest wait for a zygote that imports."""
STARTS = {"executed": PYTHON, "forked": SCRIPT}
"""Ways to start a container; `agent` sets `chosen` to one."""
chosen = {"image": PYTHON}
POD_PIDS_LIMIT = 200
"""The node's `pod_pids_limit`."""


def run(root: Path) -> None:
    """Run an agent until SIGTERM, with short delays and the runtimes `SCRIPT` and `SLOW`."""
    from serving.embedded.kubelet import agent, spawning
    from serving.embedded.kubelet.runtimes import RUNTIMES, LocalRuntime
    from serving.embedded.kubelet.zygote import pool

    logging.basicConfig(level=logging.INFO)
    spawning.ONE_THREAD["PYTHONPATH"] = str(ROOT)
    pool.IMPORT_SECONDS = IMPORT_SECONDS
    command = (sys.executable, "-u", str(ROOT / "tests/programs/script_runtime.py"))
    runtimes = {
        **RUNTIMES,
        SCRIPT: LocalRuntime(command, "tests.programs.script_runtime"),
        SLOW: LocalRuntime(command, "tests.programs.slow_runtime"),
    }
    node = replace(
        DEFAULTS.node,
        log_bytes=20_000,
        pod_pids_limit=POD_PIDS_LIMIT,
        backoff_base_seconds=0.1,
        drain_seconds=0.5,
        blocked_cap_seconds=0.3,
    )

    async def main() -> None:
        settings = replace(DEFAULTS, node=node)
        running = agent.run(DataDir(root), settings, kept=KeptSockets(), runtimes=runtimes)
        task = asyncio.ensure_future(running)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())


class NodeProcess:
    """One agent over one data directory."""

    def __init__(self, data_dir: DataDir) -> None:
        self.data_dir = data_dir
        self.log = data_dir.root.with_name(data_dir.root.name + ".node.log")
        self.process: PreloadedProcess | None = None

    def start(self) -> "NodeProcess":
        self.process = PreloadedProcess(run, self.data_dir.root, log=self.log)
        return self

    def stop(self, sig: int = signal.SIGTERM) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, sig)
        self.process.wait(10)


def pod(namespace: str, name: str, script: str, **container: Any) -> dict[str, Any]:
    """Return a Pod that runs Python code; `spec_*` arguments are fields of its spec."""
    spec = {
        key.removeprefix("spec_"): container.pop(key) for key in list(container) if key.startswith("spec_")
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [
                {
                    "name": "main",
                    "image": chosen["image"],
                    "args": ["-u", "-c", script],
                    **container,
                }
            ],
            **spec,
        },
    }


SERVER = """
import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists('/tmp/fine') or self.path != '/ready' else 503)
        self.end_headers()
    def log_message(self, *a): pass
print('up', flush=True)
http.server.HTTPServer((os.environ['HOST'], int(os.environ['PORT'])), H).serve_forever()
"""


def keeper(namespace: str, name: str = "keeper", image: str = SCRIPT) -> dict[str, Any]:
    """Return a Deployment at zero, which keeps a zygote of an image."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


@contextlib.contextmanager
def agent(data_dir: DataDir, namespace: str, start: str) -> Iterator[NodeProcess]:
    """Run an agent that starts each `pod` in this way; then empty the namespace, and print the log."""
    process = NodeProcess(data_dir).start()
    try:
        asyncio.run(_choose(start, process, namespace))
        yield process
        asyncio.run(_clear(process, namespace))
    finally:
        process.stop()
        print(process.log.read_text()[-6000:])


async def _choose(start: str, node: NodeProcess, namespace: str) -> None:
    """Select the image of `pod`, and wait until the agent can start it in this way."""
    chosen["image"] = STARTS[start]
    if start == "forked":
        async with await connect(node.data_dir.kubeconfig, component="test") as kube:
            with contextlib.suppress(errors.AlreadyExists):
                await kube.create(kinds.DEPLOYMENT, keeper(namespace))
        await until_zygote(node.data_dir, namespace)


async def _clear(node: NodeProcess, namespace: str) -> None:
    """Delete all Pods and the Deployment that keeps the zygote."""
    chosen["image"] = PYTHON
    async with await connect(node.data_dir.kubeconfig, component="test") as kube:
        with contextlib.suppress(errors.NotFound):
            await kube.delete(kinds.DEPLOYMENT, namespace, "keeper")
        await delete_pods(kube, namespace)


async def delete_pods(kube: Kube, namespace: str) -> None:
    """Delete all Pods, and wait until none exists."""
    names = [item["metadata"]["name"] for item in (await kube.list(kinds.POD, namespace)).items]
    for name in names:
        await kube.delete(kinds.POD, namespace, name, grace_seconds=0)
    for name in names:
        await until_gone(kube, namespace, name)


def zygote_of(data_dir: DataDir, namespace: str) -> processes.ProcessIdentity | None:
    """Return the listening zygote of `SCRIPT`, or None."""
    name = name_of(ZygoteKey(namespace, SCRIPT))
    record = processes.read_identity(data_dir.zygotes / f"{name}.json")
    listens = (data_dir.zygotes / f"{name}.sock").exists()
    return record[0] if record and listens and processes.is_alive(record[0]) else None


async def until_zygote(
    data_dir: DataDir, namespace: str, other_than: processes.ProcessIdentity | None = None
) -> processes.ProcessIdentity:
    """Poll until a zygote listens."""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        zygote = zygote_of(data_dir, namespace)
        if zygote is not None and zygote != other_than:
            return zygote
        await asyncio.sleep(0.02)
    raise AssertionError(f"no zygote of {namespace}: {list(data_dir.zygotes.glob('*'))}")


def forked(data_dir: DataDir, pod: dict[str, Any]) -> bool:
    """Whether the Pod's last run was forked from a zygote."""
    run = next(PodDirectory(data_dir.pods / pod["metadata"]["uid"]).latest())
    identities = run.identities()
    assert identities is not None
    return b"kubelet.zygote" in Path(f"/proc/{identities.shim.pid}/cmdline").read_bytes()


async def until(
    kube: Kube, namespace: str, name: str, holds: Callable[[dict[str, Any]], bool], seconds: float = 15
) -> dict[str, Any]:
    """Poll a Pod until the condition holds."""
    deadline = time.monotonic() + seconds
    stored: dict[str, Any] = {}
    while time.monotonic() < deadline:
        with contextlib.suppress(errors.Unavailable):
            stored = await kube.get(kinds.POD, namespace, name)
            if stored.get("status") and holds(stored):
                return stored
        await asyncio.sleep(0.03)
    raise AssertionError(f"{name} is {stored.get('metadata')} {stored.get('status')}")


async def until_gone(kube: Kube, namespace: str, name: str, seconds: float = 15) -> None:
    """Poll until the Pod does not exist."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            stored = await kube.get(kinds.POD, namespace, name)
        except errors.NotFound:
            return
        await asyncio.sleep(0.03)
    raise AssertionError(f"{name} still exists: {stored}")


def phase(expected: str) -> Callable[[dict[str, Any]], bool]:
    return lambda pod: pod["status"].get("phase") == expected


def is_ready(pod: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or [])


def main_status(pod: dict[str, Any]) -> dict[str, Any]:
    status: dict[str, Any] = (pod["status"].get("containerStatuses") or [{}])[0]
    return status


def log_of(data_dir: DataDir, pod: dict[str, Any], restart: int = 0, container: str = "main") -> str:
    return data_dir.pod_log(pod["metadata"]["uid"], container, restart).read_text()
