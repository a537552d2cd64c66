"""A Node of a real cluster with hollow replicas: its Pods are ready without a process.

The cluster's own controllers and scheduler write Pods and EndpointSlices; this program does only what a
kubelet does in the API, as KWOK. All Pods have one address, where one server answers for all of them.
"""

import argparse
import asyncio
import contextlib
import gc
from pathlib import Path

import uvloop

from serving import clock, errors
from serving.cli.machine.component import COLLECT_AFTER
from serving.kube import Informer, Kube, connect
from serving.objects import Object, is_deleting
from serving.resources import kinds

NODE = "hollow"
CAPACITY = {"cpu": "100000", "memory": "1000Ti", "ephemeral-storage": "1000Ti", "pods": "100000"}
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_SECONDS = 10.0
"""Both as kubelet's defaults."""
START_SECONDS = 0.05
"""Between a Pod that runs and one that is ready: both are reported."""
CONDITIONS = ("Initialized", "PodReadyToStartContainers", "ContainersReady", "Ready")


async def register(kube: Kube) -> None:
    """Create the Node, ready for any number of Pods. Its runtime has image volumes."""
    now = clock.rfc3339(clock.now())
    node = {
        "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"}}
    }
    with contextlib.suppress(errors.AlreadyExists):
        await kube.create(kinds.NODE, node)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "hollow"}
    status = {
        "capacity": CAPACITY,
        "allocatable": CAPACITY,
        "conditions": [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": "",
            "containerRuntimeVersion": "containerd://2.1.0",
            "kernelVersion": "6",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.36.0",
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": "hollow",
            "systemUUID": "",
        },
    }
    await kube.patch(kinds.NODE, None, NODE, {"status": status}, subresource="status")


async def renew(kube: Kube) -> None:
    """Renew the Lease of the Node until cancelled."""
    while True:
        spec = {
            "holderIdentity": NODE,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": clock.rfc3339_micro(clock.now()),
        }
        body = {"metadata": {"name": NODE, "namespace": LEASE_NAMESPACE}, "spec": spec}
        await kube.apply(kinds.LEASE, body)
        await asyncio.sleep(RENEW_SECONDS)


class HollowKubelet:
    def __init__(self, kube: Kube, address: str, group: asyncio.TaskGroup) -> None:
        self._kube = kube
        self._address = address
        self._group = group
        self._started: set[str] = set()

    def changed(self, _before: Object | None, pod: Object | None) -> None:
        """Start a Pod that is bound to the Node; remove one that is being deleted."""
        if pod is None or pod["spec"].get("nodeName") != NODE:
            return
        uid = pod["metadata"]["uid"]
        if is_deleting(pod):
            self._group.create_task(self._remove(pod))
        elif uid not in self._started:
            self._started.add(uid)
            self._group.create_task(self._start(pod))

    async def _start(self, pod: Object) -> None:
        meta = pod["metadata"]
        for is_ready in (False, True):
            with contextlib.suppress(errors.NotFound):
                status = self._status(pod, is_ready=is_ready)
                await self._kube.patch(
                    kinds.POD, meta["namespace"], meta["name"], {"status": status}, subresource="status"
                )
            await asyncio.sleep(START_SECONDS)

    async def _remove(self, pod: Object) -> None:
        meta = pod["metadata"]
        with contextlib.suppress(errors.NotFound):
            await self._kube.delete(kinds.POD, meta["namespace"], meta["name"], grace_seconds=0)

    def _status(self, pod: Object, *, is_ready: bool) -> Object:
        now = clock.rfc3339(clock.now())
        conditions = CONDITIONS if is_ready else CONDITIONS[:2]
        return {
            "phase": "Running",
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "startTime": now,
            "conditions": [
                {"type": type_, "status": "True", "lastTransitionTime": now} for type_ in conditions
            ],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container.get("image", ""),
                    "imageID": "",
                    "containerID": f"hollow://{pod['metadata']['uid']}",
                    "ready": is_ready,
                    "started": is_ready,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
                for container in pod["spec"]["containers"]
            ],
        }


async def run(kubeconfig: Path, address: str) -> None:
    async with await connect(kubeconfig, component="hollow-kubelet") as kube, asyncio.TaskGroup() as group:
        await register(kube)
        group.create_task(renew(kube))
        pods = Informer(kube, kinds.POD)
        pods.on_change(HollowKubelet(kube, address, group).changed)
        await pods.run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument(
        "--address", required=True, help="of all Pods; outside 127.0.0.0/8, as an API requires"
    )
    options = parser.parse_args()
    gc.set_threshold(*COLLECT_AFTER)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(options.kubeconfig, options.address))
