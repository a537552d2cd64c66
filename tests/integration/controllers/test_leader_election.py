"""Two processes of controllers on one API: one works, and the other takes over."""

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path

from serving.controllers import run
from serving.data_dir import DataDir
from serving.kube import Kube, connect
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.settings import DEFAULTS
from serving.system.readiness import Readiness
from tests.rig.control_plane.convergence import running, until


async def test_other_controllers_work_once_the_leader_stops(api_server: DataDir, tmp_path: Path) -> None:
    async with await connect(api_server.kubeconfig, component="test") as kube:
        namespace = f"leader-{uuid.uuid4().hex[:8]}"
        await kube.create(kinds.NAMESPACE, {"metadata": {"name": namespace}})
        controllers = replace(DEFAULTS.controllers, leader_election=True, lease_namespace=namespace)
        settings = replace(DEFAULTS, controllers=controllers)
        readiness = {name: Readiness() for name in "ab"}
        first, second = (
            run.run(directory(api_server, tmp_path / name), settings, readiness[name]) for name in "ab"
        )
        async with asyncio.timeout(30), running(first) as [leader]:
            holder = await changed_holder(kube, namespace, "")
            assert readiness["b"].obstacle() == "it is starting"
            async with running(second):
                await until_reported(kube, namespace, "first")
                await until(lambda: not readiness["b"].obstacle(), "the one that waits is ready")
                leader.cancel()
                await asyncio.gather(leader, return_exceptions=True)
                await changed_holder(kube, namespace, holder)
                await until_reported(kube, namespace, "second")


def directory(server: DataDir, path: Path) -> DataDir:
    """Return a directory of a process on another machine, which knows the API alone."""
    path.mkdir()
    data_dir = DataDir(path)
    data_dir.kubeconfig.write_text(server.kubeconfig.read_text())
    return data_dir


async def changed_holder(kube: Kube, namespace: str, before: str) -> str:
    """Wait until another process leads; return its identity."""
    while True:
        for lease in (await kube.list(kinds.LEASE, namespace)).items:
            holder = str(lease["spec"].get("holderIdentity") or "")
            if holder not in ("", before):
                return holder
        await asyncio.sleep(0.05)


async def until_reported(kube: Kube, namespace: str, name: str) -> None:
    """Create an Inference, and wait for the controllers' report on it."""
    spec = {"framework": "sklearn", "predictors": [{"name": "a", "modelVersion": "absent"}]}
    await kube.create(kinds.INFERENCE, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})
    while True:
        stored = await kube.get(kinds.INFERENCE, namespace, name)
        if conditions.find((stored.get("status") or {}).get("conditions"), "Ready"):
            return
        await asyncio.sleep(0.05)
