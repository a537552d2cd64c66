"""A Node whose kubelet is played: Pods that name its scheduler run at once, in the API alone.

Their images need not exist, so that a test controls the life of its Pods on every cluster. On the embedded
API, which has one scheduler and binds every Pod to this machine, `played_pods` is enough.
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
    """Run the Pods of a namespace whose `schedulerName` is `name` on a Node of that name."""
    await kube.create(kinds.NODE, {"metadata": {"name": name}, "spec": {"unschedulable": True}})
    try:
        async with played_pods(kube, namespace, name, address):
            yield
    finally:
        await kube.delete(kinds.NODE, None, name)


@asynccontextmanager
async def played_pods(kube: Kube, namespace: str, scheduler: str, address: str) -> AsyncIterator[None]:
    """Run the Pods of a namespace that name a scheduler: those of Jobs succeed, others are ready.

    All have the same address. Pods without a node are bound to the one that is named as their scheduler.
    """
    playing = asyncio.create_task(_play(kube, namespace, scheduler, address))
    try:
        yield
    finally:
        await kill([playing])
        for pod in await _pods(kube, namespace, scheduler):
            with contextlib.suppress(errors.NotFound):  # the Pod's controller was faster
                await kube.delete(kinds.POD, namespace, pod["metadata"]["name"], grace_seconds=0)


async def _pods(kube: Kube, namespace: str, scheduler: str) -> list[Object]:
    pods = (await kube.list(kinds.POD, namespace)).items
    return [pod for pod in pods if pod["spec"]["schedulerName"] == scheduler]


async def _play(kube: Kube, namespace: str, scheduler: str, address: str) -> None:
    while True:
        for pod in await _pods(kube, namespace, scheduler):
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await _advance(kube, pod, scheduler, address)
        await asyncio.sleep(0.1)


async def _advance(kube: Kube, pod: Object, node: str, address: str) -> None:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    if is_deleting(pod):
        await kube.delete(kinds.POD, namespace, name, grace_seconds=0)
    elif "nodeName" not in pod["spec"]:
        await bind(kube, pod, node)
    elif pod["status"]["phase"] == "Pending":
        if pod["spec"]["restartPolicy"] == "Never":
            await succeed(kube, pod)
        else:
            await _report(kube, pod, _ready(pod, address))


async def bind(kube: Kube, pod: Object, node: str) -> None:
    """Bind a Pod to a node, as a scheduler does."""
    name = pod["metadata"]["name"]
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    path = kinds.POD.path(pod["metadata"]["namespace"], name, "binding")
    await kube.request("POST", path, body=binding)


async def succeed(kube: Kube, pod: Object, message: str = "") -> None:
    """Report that the containers of a Pod have succeeded, with a termination message."""
    await _report(kube, pod, _succeeded(pod, message))


async def _report(kube: Kube, pod: Object, status: Object) -> None:
    meta = pod["metadata"]
    await kube.patch(kinds.POD, meta["namespace"], meta["name"], {"status": status}, subresource="status")


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


def _succeeded(pod: Object, message: str) -> Object:
    now = clock.rfc3339(clock.now())
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now, "message": message}
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
