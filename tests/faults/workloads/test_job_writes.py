"""A Job counts each attempt once when any API call fails, or its controller is killed at it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from serving import clock
from serving.resources import conditions, kinds
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
