"""A Deployment's controller converges to the same Pods whichever API call fails or kills it."""

import asyncio
from functools import partial

import pytest

from serving import errors
from serving.resources import kinds
from serving.settings import ControllerSettings, Settings
from tests.fakes.kube import FakeKube
from tests.rig.convergence import KilledOnce, running
from tests.rig.workload_controllers import workloads

FAST = Settings(controllers=ControllerSettings(backoff_base_seconds=0.001, backoff_cap_seconds=0.01))


def deployment(replicas: int = 2, image: str = "one", **spec: object) -> dict:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": image}]}}
    selector = {"matchLabels": {"app": "a"}}
    return {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": selector, "template": template, **spec},
    }


def ready(api: FakeKube, pod: dict) -> None:
    status = {"phase": "Running", "podIP": "127.77.0.2", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]}  # fmt: skip
    api.change(kinds.POD, "default", pod["metadata"]["name"], {"status": status})


async def node(api: FakeKube) -> None:
    """Do what an agent does: make Pods ready, and end those that are to end."""
    while True:
        for pod in api.find(kinds.POD):
            if "deletionTimestamp" in pod["metadata"]:
                api.remove(kinds.POD, "default", pod["metadata"]["name"])
            elif "status" not in pod:
                ready(api, pod)
        await asyncio.sleep(0.001)


def settled(api: FakeKube, replicas: int, image: str) -> bool:
    pods = api.find(kinds.POD)
    status = api.find(kinds.DEPLOYMENT)[0].get("status", {})
    images = [pod["spec"]["containers"][0]["image"] for pod in pods]
    generation = api.find(kinds.DEPLOYMENT)[0]["metadata"]["generation"]
    counts = [status.get(k) for k in ("replicas", "updatedReplicas", "availableReplicas")]
    return (
        images == [image] * replicas
        and counts == [replicas] * 3
        and status["observedGeneration"] == generation
    )


async def until_settled(api: FakeKube, replicas: int, image: str) -> None:
    async with asyncio.timeout(5):
        while not settled(api, replicas, image):
            await asyncio.sleep(0.001)


async def story(api: FakeKube) -> None:
    """Create, roll out another image, scale up and down: each until it has settled."""
    await api.client("user").create(kinds.DEPLOYMENT, deployment())
    await until_settled(api, 2, "one")
    api.change(kinds.DEPLOYMENT, "default", "web", {"spec": deployment(image="two")["spec"]})
    await until_settled(api, 2, "two")
    api.change(kinds.DEPLOYMENT, "default", "web", {"spec": {"replicas": 4}})
    await until_settled(api, 4, "two")
    api.change(kinds.DEPLOYMENT, "default", "web", {"spec": {"replicas": 0}})
    await until_settled(api, 0, "two")


def watched(api: FakeKube) -> list[int]:
    """Active Pods after each write, from the server's own log."""
    alive: set[str] = set()
    counts = []
    for _, kind, type_, obj in api.log:
        if kind == kinds.POD:
            if type_ == "DELETED" or "deletionTimestamp" in obj["metadata"]:
                alive.discard(obj["metadata"]["uid"])
            else:
                alive.add(obj["metadata"]["uid"])
            counts.append(len(alive))
    return counts


@pytest.mark.parametrize("done", [False, True], ids=["not-done", "answer-lost"])
async def test_pods_are_the_same_and_never_too_many_when_any_write_fails(*, done: bool) -> None:
    api = FakeKube()
    async with running(workloads(api.client("node"), FAST), node(api)):
        await story(api)
    for number in range(1, len(api.writes)):  # 0 is the user's own
        api = FakeKube()
        api.fail_next(errors.Unavailable("told to fail"), skip=number, done=done)
        async with running(workloads(api.client("node"), FAST), node(api)):
            await story(api)
        assert max(watched(api)) <= 4
        revision = api.find(kinds.DEPLOYMENT)[0]["metadata"]["annotations"][
            "deployment.kubernetes.io/revision"
        ]
        assert revision == "2"


@pytest.mark.parametrize("done", [False, True], ids=["before-the-write", "after-the-write"])
async def test_pods_are_the_same_when_the_controller_is_killed_at_any_write(*, done: bool) -> None:
    number, killed = 1, True
    while killed:
        api = FakeKube()
        control = partial(workloads, api.client("node"), FAST)
        agent = KilledOnce(api.hang_next(skip=number, done=done), control)
        async with running(agent.run(), node(api)):
            await story(api)
        assert max(watched(api)) <= 4
        number, killed = number + 1, agent.killed
    assert number > 8
