"""Killed, refused or left without an answer at any write, the Inference controller ends with the same objects."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from serving import errors
from serving.controllers.inference import InferenceController
from serving.kube import Informer
from serving.resources import conditions, kinds
from serving.settings import ControllerSettings
from tests.fakes.api import FakeKube
from tests.fakes.surroundings import NS, FakeProber, Surroundings, inference, predictor, ready_version

Object = dict[str, Any]
SETTINGS = dataclasses.replace(
    ControllerSettings(),
    workers=2,
    backoff_base_seconds=0.001,
    backoff_cap_seconds=0.01,
    probe_retry_seconds=0.01,
)
CHILDREN = (kinds.DEPLOYMENT, kinds.SERVICE, kinds.AUTOSCALER, kinds.ROUTE)


async def _control(api: FakeKube, prober: FakeProber) -> None:
    kube = api.client("inference")
    versions = Informer(kube, kinds.MODEL_VERSION)
    controller = InferenceController(kube, SETTINGS, prober, versions)
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.run())
        for informer in (versions, *controller.informers):
            group.create_task(informer.run())


@asynccontextmanager
async def running(api: FakeKube, prober: FakeProber | None = None) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(_control(api, prober or FakeProber()))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(true: Callable[[], bool], what: str = "the condition", seconds: float = 10.0) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not true():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true"
        await asyncio.sleep(0.002)


def the_inference(api: FakeKube, name: str = "digits") -> Object:
    return next(o for o in api.find(kinds.INFERENCE) if o["metadata"]["name"] == name)


def is_settled(api: FakeKube, deployments: int) -> bool:
    obj = the_inference(api)
    status = obj.get("status") or {}
    ready = conditions.find(status.get("conditions"), "Ready") or {}
    return (
        ready.get("status") == "True"
        and ready["observedGeneration"] == obj["metadata"]["generation"]
        and all(len(api.find(kind)) == deployments for kind in (kinds.DEPLOYMENT, kinds.SERVICE))
        and len(api.find(kinds.ROUTE)[0]["spec"]["backends"]) == deployments
        and not any(p["candidateRevision"] for p in status["predictors"])
    )


def picture(api: FakeKube) -> Object:
    """All that the controller is answerable for, without times and counters."""
    result: Object = {}
    for kind in CHILDREN:
        for obj in api.find(kind):
            meta = obj["metadata"]
            owners = [o["name"] for o in meta["ownerReferences"]]
            result[f"{kind.kind} {meta['name']}"] = (obj["spec"], meta["labels"], owners)
    for obj in api.find(kinds.INFERENCE):
        said = [(c["type"], c["status"], c["reason"]) for c in obj["status"]["conditions"]]
        result["Inference"] = (obj["metadata"]["finalizers"], obj["status"]["predictors"], said)
    return result


def arrange() -> FakeKube:
    api = FakeKube()
    for name in ("digits-v1", "digits-v2", "digits-v3"):
        api._create(kinds.MODEL_VERSION, ready_version(name))
    api._create(
        kinds.INFERENCE, inference(predictor("stable", "digits-v1", 90), predictor("new", "digits-v2", 10))
    )
    return api


async def story(api: FakeKube) -> Object:
    """Create; then, in one edit, change a version in place, remove an arm and add one. Returns the end."""
    await until(lambda: is_settled(api, 2), "created")
    predictors = [predictor("stable", "digits-v3", 50), predictor("other", "digits-v2", 50)]
    api.change(kinds.INFERENCE, NS, "digits", {"spec": {"predictors": predictors}})
    await until(lambda: is_settled(api, 2), "changed")
    return picture(api)


async def _baseline() -> tuple[Object, int]:
    api = arrange()
    around = Surroundings(api)
    around.start()
    async with running(api):
        end = await story(api)
    await around.stop()
    return end, len(api.writes)


@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer-lost"])
async def test_same_objects_when_each_write_fails_in_turn(*, done: bool) -> None:
    end, count = await _baseline()
    assert count > 10
    for skip in range(count):
        api = arrange()
        around = Surroundings(api)
        around.start()
        api.fail_next(errors.Unavailable("down"), skip=skip, done=done)
        async with running(api):
            assert await story(api) == end, f"write {skip}: {api.writes[skip]}"
        await around.stop()


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_same_objects_when_killed_at_each_write_in_turn(*, done: bool) -> None:
    end, count = await _baseline()
    for skip in range(count):
        api = arrange()
        around = Surroundings(api)
        around.start()
        reached = api.hang_next(skip=skip, done=done)
        async with running(api) as first:
            finished = asyncio.create_task(story(api))
            died = asyncio.create_task(reached.wait())
            await asyncio.wait({finished, died}, return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            async with running(api):
                assert await finished == end, f"write {skip}: {api.writes[skip]}"
        await around.stop()


@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer-lost"])
async def test_deletion_leaves_nothing_when_each_write_fails_in_turn(*, done: bool) -> None:
    for skip in range(9):
        api = arrange()
        around = Surroundings(api)
        around.start()
        async with running(api):
            await until(lambda api=api: is_settled(api, 2), "created")
            await api.delete(kinds.INFERENCE, NS, "digits")
            api.fail_next(errors.Unavailable("down"), skip=skip, done=done)
            await until(lambda api=api: not any(api.find(k) for k in (kinds.INFERENCE, *CHILDREN)), "gone")
        await around.stop()
