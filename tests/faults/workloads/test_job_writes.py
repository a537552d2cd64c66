"""A Job runs and counts each attempt once, whichever API call fails or kills its controller."""

import asyncio
from functools import partial

import pytest

from serving import clock, errors
from serving.resources import conditions, kinds
from serving.settings import ControllerSettings, NodeSettings, Settings
from tests.fakes.kube import FakeKube
from tests.rig.convergence import KilledOnce, running
from tests.rig.workload_controllers import workloads

FAST = Settings(
    controllers=ControllerSettings(backoff_base_seconds=0.001, backoff_cap_seconds=0.01),
    node=NodeSettings(backoff_base_seconds=0.001, backoff_cap_seconds=0.001),
)


def job(**spec: object) -> dict:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return {
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"parallelism": 2, "completions": 3, "backoffLimit": 6, "template": template, **spec},
    }


async def node(api: FakeKube) -> None:
    """Finish each Pod that it sees; the first to finish fails."""
    first = True
    while True:
        for pod in api.find(kinds.POD):
            name = pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"]:
                api.remove(kinds.POD, "default", name)
            elif "status" not in pod:
                ended = {"terminated": {"finishedAt": clock.rfc3339(clock.now())}}
                phase = "Failed" if first else "Succeeded"
                first = False
                status = {"phase": phase, "containerStatuses": [{"name": "c", "state": ended}]}
                api.change(kinds.POD, "default", name, {"status": status})
        await asyncio.sleep(0.001)


async def until_ended(api: FakeKube, type_: str) -> dict:
    async with asyncio.timeout(10):
        while True:
            jobs = api.find(kinds.JOB)
            if jobs and conditions.is_true(jobs[0], type_):
                return jobs[0]["status"]
            await asyncio.sleep(0.001)


async def story(api: FakeKube) -> None:
    await api.client("user").create(kinds.JOB, job())
    status = await until_ended(api, "Complete")
    assert (status["succeeded"], status["failed"], status["active"]) == (3, 1, 0)
    assert len(api.find(kinds.POD)) == 4
    assert "completionTime" in status


@pytest.mark.parametrize("done", [False, True], ids=["not-done", "answer-lost"])
async def test_attempts_are_counted_once_when_any_write_fails(*, done: bool) -> None:
    api = FakeKube()
    async with running(workloads(api.client("node"), FAST), node(api)):
        await story(api)
    for number in range(1, len(api.writes)):  # 0 is the user's own
        api = FakeKube()
        api.fail_next(errors.Unavailable("told to fail"), skip=number, done=done)
        async with running(workloads(api.client("node"), FAST), node(api)):
            await story(api)


@pytest.mark.parametrize("done", [False, True], ids=["before-the-write", "after-the-write"])
async def test_attempts_are_counted_once_when_killed_at_any_write(*, done: bool) -> None:
    number, killed = 1, True
    while killed:
        api = FakeKube()
        control = partial(workloads, api.client("node"), FAST)
        agent = KilledOnce(api.hang_next(skip=number, done=done), control)
        async with running(agent.run(), node(api)):
            await story(api)
        number, killed = number + 1, agent.killed
    assert number > 8


async def test_job_fails_once_and_its_pods_end_when_backoff_limit_is_exceeded() -> None:
    api = FakeKube()
    async with running(workloads(api.client("node"), FAST), node(api)):
        await api.client("user").create(kinds.JOB, job(backoffLimit=0))
        status = await until_ended(api, "Failed")
    assert conditions.find(status["conditions"], "Failed")["reason"] == "BackoffLimitExceeded"
    assert "completionTime" not in status
