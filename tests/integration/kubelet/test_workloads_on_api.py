"""Deployments, Jobs and EndpointSlices on the embedded API, through kubectl; Pods are simulated."""

import asyncio
import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving import clock
from serving.data_dir import DataDir
from serving.kube import Kube, connect
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions
from serving.settings import Settings
from tests.rig.control_plane.workload_controllers import workloads

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: slipway.dev/runtimes/sklearn, ports: [{name: serve, containerPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: serve}]}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: i, command: [sh, -c, "true"]}]}
"""


class Kubectl:
    """kubectl in one namespace."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._base = ["kubectl", f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"]

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            [*self._base, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout


class Player:
    """Simulates the node: makes Pods ready, finishes those of Jobs, and removes deleted ones."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self.broken = ""
        self._count = 1

    async def run(self) -> None:
        while True:
            for pod in (await self._kube.list(kinds.POD, self._namespace)).items:
                await self._play(pod)
            await asyncio.sleep(0.05)

    async def _play(self, pod: dict) -> None:
        meta = pod["metadata"]
        if "deletionTimestamp" in meta:
            body = {"gracePeriodSeconds": 0}
            path = kinds.POD.path(self._namespace, meta["name"])
            await self._kube.request(
                "DELETE", path, body={"apiVersion": "v1", "kind": "DeleteOptions", **body}
            )
            return
        if (pod.get("status") or {}).get("phase") not in (None, "Pending"):
            return
        stamp = clock.rfc3339(clock.now())
        image = pod["spec"]["containers"][0]["image"]
        if meta["ownerReferences"][0]["kind"] == "Job":
            status = {"phase": "Succeeded"}
        elif image == self.broken:
            return
        else:
            self._count += 1
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp}
            status = {"phase": "Running", "podIP": f"127.77.9.{self._count}", "conditions": [ready]}
        await self._kube.patch(
            kinds.POD, self._namespace, meta["name"], {"status": status}, subresource="status"
        )


@contextlib.asynccontextmanager
async def playing(api_server: DataDir, namespace: str) -> AsyncIterator[tuple[Kube, Kubectl, Player]]:
    async with await connect(api_server.kubeconfig, component="node") as kube:
        await kube.create(kinds.NAMESPACE, {"metadata": {"name": namespace}})
        player = Player(kube, namespace)
        tasks = [asyncio.create_task(workloads(kube, Settings())), asyncio.create_task(player.run())]
        try:
            yield kube, Kubectl(api_server.kubeconfig, namespace), player
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(e, asyncio.CancelledError) for e in ended), ended


async def until(check, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not await check():
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.02)


async def test_rollout_scales_restarts_and_stays_available_with_a_bad_revision(api_server: DataDir) -> None:
    async with playing(api_server, "rollouts") as (kube, kubectl, player):
        await kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
        output = await kubectl("rollout", "status", "deployment/web", "--timeout=20s")
        assert "successfully rolled out" in output
        await kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=10s")
        await kubectl("scale", "deployment/web", "--replicas=3")
        await kubectl("rollout", "status", "deployment/web", "--timeout=20s")
        before = {p["metadata"]["name"] for p in (await kube.list(kinds.POD, "rollouts")).items}
        assert len(before) == 3
        await kubectl("rollout", "restart", "deployment/web")
        await kubectl("rollout", "status", "deployment/web", "--timeout=20s")
        deployment = await kube.get(kinds.DEPLOYMENT, "rollouts", "web")
        assert deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"

        player.broken = "slipway.dev/runtimes/broken"
        await kubectl("set", "image", "deployment/web", f"c={player.broken}")

        async def stuck() -> bool:
            status = (await kube.get(kinds.DEPLOYMENT, "rollouts", "web"))["status"]
            return status.get("updatedReplicas") == 1 and status["observedGeneration"] > 3

        await until(stuck)
        await asyncio.sleep(0.3)  # a wrong controller would continue now
        status = (await kube.get(kinds.DEPLOYMENT, "rollouts", "web"))["status"]
        assert (status["availableReplicas"], status["replicas"]) == (3, 4)
        await kubectl("set", "image", "deployment/web", "c=slipway.dev/runtimes/sklearn")
        await kubectl("rollout", "status", "deployment/web", "--timeout=20s")

        await kubectl("delete", "deployment/web", "--timeout=20s")

        async def gone() -> bool:
            return not (await kube.list(kinds.POD, "rollouts")).items

        await until(gone)


async def test_slice_follows_a_pod_at_once_and_is_written_only_on_change(api_server: DataDir) -> None:
    async with playing(api_server, "slices") as (kube, kubectl, _):
        await kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
        await kubectl("rollout", "status", "deployment/web", "--timeout=20s")

        async def ready() -> int:
            stored = await kube.get(kinds.ENDPOINT_SLICE, "slices", "web-local")
            return sum(e["conditions"]["ready"] for e in stored["endpoints"])

        async def both_are_ready() -> bool:
            return await ready() == 2

        await until(both_are_ready)
        pod = (await kube.list(kinds.POD, "slices")).items[0]
        status = {"conditions": [{"type": "Ready", "status": "False"}]}
        start = time.monotonic()
        await kube.patch(
            kinds.POD, "slices", pod["metadata"]["name"], {"status": status}, subresource="status"
        )

        async def one_is_ready() -> bool:
            return await ready() == 1

        await until(one_is_ready)
        assert time.monotonic() - start < 1.0
        version = (await kube.get(kinds.ENDPOINT_SLICE, "slices", "web-local"))["metadata"]["resourceVersion"]
        await kubectl("annotate", "pod", pod["metadata"]["name"], "note=nothing")
        await kubectl("scale", "deployment/web", "--replicas=2")
        again = await kube.get(kinds.ENDPOINT_SLICE, "slices", "web-local")
        assert again["metadata"]["resourceVersion"] == version


async def test_job_completes_for_kubectl_wait_and_keeps_its_pod(api_server: DataDir) -> None:
    async with playing(api_server, "jobs") as (kube, kubectl, _):
        await kubectl("apply", "-f", "-", stdin=JOB)
        await kubectl("wait", "--for=condition=complete", "job/train", "--timeout=20s")
        row = json.loads(await kubectl("get", "job", "train", "-o", "json"))
        assert row["status"]["succeeded"] == 1
        pods = (await kube.list(kinds.POD, "jobs", labels="job-name=train")).items
        assert [p["status"]["phase"] for p in pods] == ["Succeeded"]
        assert row["spec"]["selector"]["matchLabels"].items() <= pods[0]["metadata"]["labels"].items()
        await kubectl("delete", "job/train", "--timeout=20s")

        async def gone() -> bool:
            return not (await kube.list(kinds.POD, "jobs")).items

        await until(gone)


async def test_standby_pod_gets_no_traffic_until_a_replica_is_added(api_server: DataDir) -> None:
    async with playing(api_server, "standby") as (kube, kubectl, _):

        async def standby_by_pod() -> dict[str, bool]:
            """Ready Pods that are not terminating: name → whether it is a standby."""
            pods = (await kube.list(kinds.POD, "standby")).items
            return {
                p["metadata"]["name"]: names.STANDBY_LABEL in p["metadata"]["labels"]
                for p in pods
                if "deletionTimestamp" not in p["metadata"] and conditions.is_true(p, "Ready")
            }

        async def serving() -> set[str]:
            slices = (await kube.list(kinds.ENDPOINT_SLICE, "standby")).items
            return {
                e["targetRef"]["name"] for s in slices for e in s["endpoints"] if e["conditions"]["ready"]
            }

        await kubectl("apply", "-f", "-", stdin=DEPLOYMENT.replace("replicas: 2", "replicas: 0"))
        await kubectl("annotate", "deployment/web", f"{names.STANDBY_ANNOTATION}=1")
        await until(lambda: _holds(standby_by_pod, lambda pods: list(pods.values()) == [True]))
        (waiting,) = await standby_by_pod()
        status = (await kube.get(kinds.DEPLOYMENT, "standby", "web"))["status"]
        assert (status["replicas"], status["readyReplicas"], await serving()) == (0, 0, set())

        await kubectl("scale", "deployment/web", "--replicas=1")
        await kubectl("rollout", "status", "deployment/web", "--timeout=20s")
        await until(lambda: _holds(serving, lambda names_: names_ == {waiting}))
        await until(lambda: _holds(standby_by_pod, lambda pods: sorted(pods.values()) == [False, True]))

        await kubectl("scale", "deployment/web", "--replicas=0")
        await until(lambda: _holds(standby_by_pod, lambda pods: list(pods.values()) == [True]))
        await kubectl("annotate", "deployment/web", f"{names.STANDBY_ANNOTATION}-")
        await until(lambda: _holds(standby_by_pod, lambda pods: pods == {}))


async def _holds(read, condition) -> bool:
    return condition(await read())
