"""The Inference controller converges to the same objects when writes fail or it is killed."""

import asyncio

import pytest

from serving import errors
from serving.controllers.inference import InferenceController
from serving.kube import Watches
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions
from tests.fakes.kube import FakeKube
from tests.fakes.surroundings import NS, Surroundings, inference, predictor, ready_version
from tests.rig.control_plane.convergence import QUICK, Case, kill, running, until

CHILDREN = (kinds.DEPLOYMENT, kinds.SERVICE, kinds.AUTOSCALER, kinds.ROUTE)


def the_inference(api: FakeKube, name: str = "digits") -> Object:
    return next(o for o in api.find(kinds.INFERENCE) if o["metadata"]["name"] == name)


def reason(api: FakeKube, arm: str) -> str:
    """Return the reason in the status of an arm."""
    arms = (the_inference(api).get("status") or {}).get("predictors") or []
    return next((str(arm_status["reason"]) for arm_status in arms if arm_status["name"] == arm), "")


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


def final_state(api: FakeKube) -> Object:
    """Return everything that the controller writes, without times and counters."""
    result: Object = {}
    for kind in CHILDREN:
        for obj in api.find(kind):
            meta = obj["metadata"]
            owners = [o["name"] for o in meta["ownerReferences"]]
            result[f"{kind.kind} {meta['name']}"] = (obj["spec"], meta["labels"], owners)
    for obj in api.find(kinds.INFERENCE):
        condition_list = [(c["type"], c["status"], c["reason"]) for c in obj["status"]["conditions"]]
        result["Inference"] = (obj["metadata"]["finalizers"], obj["status"]["predictors"], condition_list)
    return result


def arrange() -> FakeKube:
    api = FakeKube()
    for name in ("digits-v1", "digits-v2", "digits-v3"):
        api.add(kinds.MODEL_VERSION, ready_version(name))
    api.add(
        kinds.INFERENCE, inference(predictor("stable", "digits-v1", 90), predictor("new", "digits-v2", 10))
    )
    return api


async def story(api: FakeKube) -> Object:
    """Create; then, in one edit, change a version, remove an arm and add one. Return the final state."""
    await until(lambda: is_settled(api, 2), "created")
    predictors = [predictor("stable", "digits-v3", 50), predictor("other", "digits-v2", 50)]
    api.change(kinds.INFERENCE, NS, "digits", {"spec": {"predictors": predictors}})
    await until(lambda: is_settled(api, 2), "changed")
    return final_state(api)


async def around(api: FakeKube) -> None:
    surroundings = Surroundings(api)
    surroundings.start()
    try:
        await asyncio.Event().wait()
    finally:
        await surroundings.stop()


async def control(api: FakeKube) -> None:
    kube = api.client("inference")
    watches = Watches(kube)
    controller = InferenceController(kube, QUICK, watches)
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.run())
        group.create_task(watches.run())


CASE = Case(arrange, control, around, story)


@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer-lost"])
async def test_objects_are_the_same_when_each_write_fails_in_turn(*, done: bool) -> None:
    assert await CASE.survives_failures(done=done) > 10


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_objects_are_the_same_when_the_controller_is_killed_at_each_write_in_turn(
    *, done: bool
) -> None:
    assert await CASE.survives_kills(done=done) > 10


@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer-lost"])
async def test_deletion_leaves_nothing_when_each_write_fails_in_turn(*, done: bool) -> None:
    for skip in range(9):
        api = arrange()
        async with running(around(api), control(api)):
            await until(lambda api=api: is_settled(api, 2), "created")
            await api.delete(kinds.INFERENCE, NS, "digits")
            api.fail_next(errors.Unavailable("down"), skip=skip, done=done)
            await until(lambda api=api: not any(api.find(k) for k in (kinds.INFERENCE, *CHILDREN)), "gone")


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_deletion_leaves_nothing_when_the_controller_is_killed_at_each_write_in_turn(
    *, done: bool
) -> None:
    for skip in range(8):
        api = arrange()
        async with running(around(api)), running(control(api)) as first:
            await until(lambda api=api: is_settled(api, 2), "created")
            reached = api.hang_next(skip=skip + 1, done=done)
            await api.delete(kinds.INFERENCE, NS, "digits")
            await reached.wait()
            await kill(first)
            async with running(control(api)):
                await until(
                    lambda api=api: not any(api.find(k) for k in (kinds.INFERENCE, *CHILDREN)), "gone"
                )


async def test_refused_revision_is_reported_and_blocks_no_other_arm() -> None:
    api = arrange()
    api.refusals.append(
        lambda kind, obj: "no" if kind is kinds.DEPLOYMENT and "-new-" in obj["metadata"]["name"] else ""
    )
    async with running(around(api), control(api)):
        await until(lambda: reason(api, "new") == "RevisionRefused" and reason(api, "stable") == "Ready")
        assert [d["metadata"]["labels"][names.PREDICTOR_LABEL] for d in api.find(kinds.DEPLOYMENT)] == [
            "stable"
        ]
        api.refusals.clear()
        api.change(kinds.INFERENCE, NS, "digits", {"metadata": {"labels": {"again": "yes"}}})
        await until(lambda: is_settled(api, 2), "the refused revision is settled")
