"""A Job counts each attempt once when any API call fails, or its controller is killed at it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from serving import clock, errors
from serving.embedded.event_queue import EventQueue
from serving.embedded.workloads.job.controller import JobController
from serving.embedded.workloads.owned_pods import OwnedPods
from serving.kube import EventRecorder, Informer, Key
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.settings import ControllerSettings, NodeSettings, Settings
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import Case, running, until
from tests.rig.control_plane.workload_controllers import workloads

FAST = Settings(
    controllers=ControllerSettings(backoff_base_seconds=0.001, backoff_cap_seconds=0.01),
    node=NodeSettings(backoff_base_seconds=0.001, backoff_cap_seconds=0.001),
)


def job(**spec: object) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return {
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"parallelism": 2, "completions": 3, "backoffLimit": 6, "template": template, **spec},
    }


async def node(api: FakeKube) -> None:
    """Simulate the agent: finish every Pod; the first one fails."""
    is_first = True
    while True:
        for pod in api.find(kinds.POD):
            name = pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"]:
                api.remove(kinds.POD, "default", name)
            elif pod["status"]["phase"] == "Pending":
                state = {"terminated": {"finishedAt": clock.rfc3339(clock.now())}}
                phase = "Failed" if is_first else "Succeeded"
                is_first = False
                status = {"phase": phase, "containerStatuses": [{"name": "c", "state": state}]}
                api.change(kinds.POD, "default", name, {"status": status})
        await asyncio.sleep(0.001)


def is_over(api: FakeKube, type_: str) -> bool:
    return any(conditions.is_true(job, type_) for job in api.find(kinds.JOB))


async def story(api: FakeKube) -> dict[str, Any]:
    api.add(kinds.JOB, job())
    await until(lambda: is_over(api, "Complete"))
    status = api.find(kinds.JOB)[0]["status"]
    assert "completionTime" in status
    return {
        "pods": len(api.find(kinds.POD)),
        **{key: status[key] for key in ("succeeded", "failed", "active")},
    }


def control(api: FakeKube) -> Coroutine[Any, Any, None]:
    return workloads(api.client("node"), FAST)


CASE = Case(FakeKube, control, node, story)


async def test_attempts_are_counted_once() -> None:
    picture, _ = await CASE.undisturbed()
    assert picture == {"pods": 4, "succeeded": 3, "failed": 1, "active": 0}


@pytest.mark.parametrize("done", [False, True], ids=["not-done", "answer-lost"])
async def test_attempts_are_counted_once_when_any_write_fails(*, done: bool) -> None:
    assert await CASE.survives_failures(done=done) > 7


@pytest.mark.parametrize("done", [False, True], ids=["before-the-write", "after-the-write"])
async def test_attempts_are_counted_once_when_the_controller_is_killed_at_any_write(*, done: bool) -> None:
    assert await CASE.survives_kills(done=done) > 7


async def test_job_fails_once_and_its_pods_end_when_backoff_limit_is_exceeded() -> None:
    api = FakeKube()
    async with running(control(api), node(api)):
        api.add(kinds.JOB, job(backoffLimit=0))
        await until(lambda: is_over(api, "Failed"))
        status = api.find(kinds.JOB)[0]["status"]
    assert conditions.find(status["conditions"], "Failed")["reason"] == "BackoffLimitExceeded"
    assert "completionTime" not in status


class Replaced:
    """A Job `train`, its controller, and informers that list when a test lets them, and watch nothing."""

    def __init__(self, api: FakeKube) -> None:
        self.api = api
        self.jobs, self.pods = Informer(api, kinds.JOB), Informer(api, kinds.POD)
        events = EventQueue(EventRecorder(api, "test"))
        owned = OwnedPods(api, self.pods, events)
        self.controller = JobController(api, self.jobs, owned, events, FAST.node)

    async def reconcile(self) -> None:
        await self.controller.reconcile(Key("default", "train"))

    def replace(self) -> None:
        """Put another Job in the place of the Job."""
        if self.api.find(kinds.JOB):
            self.api.remove(kinds.JOB, "default", "train")
        self.api.add(kinds.JOB, job(parallelism=1, completions=1))

    def stored_status(self) -> Object:
        (stored,) = self.api.find(kinds.JOB)
        return stored.get("status") or {}


async def test_job_that_replaces_a_finished_one_does_not_get_its_end_when_the_watch_is_behind() -> None:
    train = Replaced(FakeKube())
    train.replace()
    await train.jobs._list()
    await train.reconcile()
    (pod,) = train.api.find(kinds.POD)
    state = {"terminated": {"finishedAt": clock.rfc3339(clock.now())}}
    status = {"phase": "Succeeded", "containerStatuses": [{"name": "c", "state": state}]}
    train.api.change(kinds.POD, "default", pod["metadata"]["name"], {"status": status})
    await train.pods._list()
    train.replace()
    with pytest.raises(errors.Conflict):
        await train.reconcile()
    assert train.stored_status() == {}


async def test_job_that_replaces_one_between_two_writes_does_not_get_the_status_of_it() -> None:
    class ReplacingKube(FakeKube):
        async def create(self, kind: kinds.Kind, obj: Object) -> Object:
            created = await super().create(kind, obj)
            if kind == kinds.POD:
                train.replace()
                await train.jobs._list()
            return created

    train = Replaced(ReplacingKube())
    train.replace()
    await train.jobs._list()
    await train.reconcile()
    assert train.stored_status() == {}
