"""A Deployment converges to the same Pods when any API call fails, or its controller is killed at it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from serving.resources import kinds
from serving.settings import ControllerSettings, Settings
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import Case, until
from tests.rig.control_plane.workload_controllers import workloads

FAST = Settings(controllers=ControllerSettings(backoff_base_seconds=0.001, backoff_cap_seconds=0.01))


def deployment(replicas: int = 2, image: str = "one") -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": image}]}}
    return {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "a"}}, "template": template},
    }


def make_ready(api: FakeKube, pod: dict[str, Any]) -> None:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"phase": "Running", "podIP": "127.77.0.2", "conditions": [condition]}
    api.change(kinds.POD, "default", pod["metadata"]["name"], {"status": status})


async def node(api: FakeKube) -> None:
    """Simulate the agent: make Pods ready, and remove deleted ones."""
    while True:
        for pod in api.find(kinds.POD):
            if "deletionTimestamp" in pod["metadata"]:
                api.remove(kinds.POD, "default", pod["metadata"]["name"])
            elif "podIP" not in pod["status"]:
                make_ready(api, pod)
        await asyncio.sleep(0.001)


def is_settled(api: FakeKube, replicas: int, image: str) -> bool:
    [web] = api.find(kinds.DEPLOYMENT)
    status = web.get("status", {})
    images = [pod["spec"]["containers"][0]["image"] for pod in api.find(kinds.POD)]
    counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
    is_current = status.get("observedGeneration") == web["metadata"]["generation"]
    return images == [image] * replicas and counts == [replicas] * 3 and is_current


async def story(api: FakeKube) -> dict[str, Any]:
    """Create, roll out another image, scale up and down, each until settled."""
    api.add(kinds.DEPLOYMENT, deployment())
    await until(lambda: is_settled(api, 2, "one"))
    [web] = api.find(kinds.DEPLOYMENT)
    container = {**web["spec"]["template"]["spec"]["containers"][0], "image": "two"}
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    api.change(kinds.DEPLOYMENT, "default", "web", change)
    await until(lambda: is_settled(api, 2, "two"))
    for replicas in (4, 0):
        api.change(kinds.DEPLOYMENT, "default", "web", {"spec": {"replicas": replicas}})
        await until(lambda count=replicas: is_settled(api, count, "two"))
    [web] = api.find(kinds.DEPLOYMENT)
    assert max(active_pods(api)) <= 4
    return {"revision": web["metadata"]["annotations"]["deployment.kubernetes.io/revision"]}


def active_pods(api: FakeKube) -> list[int]:
    """Return the number of active Pods after each write, from the server's own log."""
    active: set[str] = set()
    counts = []
    for change in api.log:
        pod = change.after or change.before
        if change.kind == kinds.POD and pod is not None:
            if change.after is None or "deletionTimestamp" in pod["metadata"]:
                active.discard(pod["metadata"]["uid"])
            else:
                active.add(pod["metadata"]["uid"])
            counts.append(len(active))
    return counts


def control(api: FakeKube) -> Coroutine[Any, Any, None]:
    return workloads(api.client("node"), FAST)


CASE = Case(FakeKube, control, node, story)


@pytest.mark.parametrize("done", [False, True], ids=["not-done", "answer-lost"])
async def test_pods_converge_and_never_exceed_the_bound_when_any_write_fails(*, done: bool) -> None:
    assert await CASE.survives_failures(done=done) > 7


@pytest.mark.parametrize("done", [False, True], ids=["before-the-write", "after-the-write"])
async def test_pods_are_the_same_when_the_controller_is_killed_at_any_write(*, done: bool) -> None:
    assert await CASE.survives_kills(done=done) > 7


async def test_two_revisions_are_counted_when_the_image_changed_once() -> None:
    picture, _ = await CASE.undisturbed()
    assert picture == {"revision": "2"}
