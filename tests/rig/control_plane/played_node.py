"""A Node whose kubelet is played: Pods that name its scheduler run at once, in the API alone.

Their images need not exist, so that a test controls the life of its Pods on every cluster.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from serving import clock, errors
from serving.kube import Kube
from serving.objects import Object, is_deleting
from serving.resources import kinds
from tests.rig.control_plane.convergence import kill


@asynccontextmanager
async def played_node(kube: Kube, namespace: str, name: str, address: str) -> AsyncIterator[None]:
    """Run the Pods of a namespace whose `schedulerName` is `name`: those of Jobs succeed, others are ready.

    All have the same address.
    """
    await kube.create(kinds.NODE, {"metadata": {"name": name}, "spec": {"unschedulable": True}})
    playing = asyncio.create_task(_play(kube, namespace, name, address))
    try:
        yield
    finally:
        await kill([playing])
        for pod in await _pods(kube, namespace, name):
            await kube.delete(kinds.POD, namespace, pod["metadata"]["name"], grace_seconds=0)
        await kube.delete(kinds.NODE, None, name)


async def _pods(kube: Kube, namespace: str, node: str) -> list[Object]:
    return [
        pod for pod in (await kube.list(kinds.POD, namespace)).items if pod["spec"]["schedulerName"] == node
    ]


async def _play(kube: Kube, namespace: str, node: str, address: str) -> None:
    while True:
        for pod in await _pods(kube, namespace, node):
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await _advance(kube, pod, node, address)
        await asyncio.sleep(0.1)


async def _advance(kube: Kube, pod: Object, node: str, address: str) -> None:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    if is_deleting(pod):
        await kube.delete(kinds.POD, namespace, name, grace_seconds=0)
    elif "nodeName" not in pod["spec"]:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await kube.request("POST", kinds.POD.path(namespace, name, "binding"), body=binding)
    elif pod["status"]["phase"] == "Pending":
        status = _succeeded(pod) if pod["spec"]["restartPolicy"] == "Never" else _ready(pod, address)
        await kube.patch(kinds.POD, namespace, name, {"status": status}, subresource="status")


def _ready(pod: Object, address: str) -> Object:
    now = clock.rfc3339(clock.now())
    running = {"running": {"startedAt": now}}
    true = ("Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": type_, "status": "True", "lastTransitionTime": now} for type_ in true],
        "containerStatuses": _containers(pod, running, is_ready=True),
    }


def _succeeded(pod: Object) -> Object:
    now = clock.rfc3339(clock.now())
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    containers = _containers(pod, {"terminated": ended}, is_ready=False)
    return {"phase": "Succeeded", "containerStatuses": containers}


def _containers(pod: Object, state: Object, *, is_ready: bool) -> list[Object]:
    return [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "containerID": f"played://{pod['metadata']['uid']}",
            "ready": is_ready,
            "started": is_ready,
            "restartCount": 0,
            "state": state,
        }
        for container in pod["spec"]["containers"]
    ]
