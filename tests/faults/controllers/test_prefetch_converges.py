"""The DaemonSets of predictors with `prefetch` are the same when writes fail or the controller is killed."""

import asyncio

import pytest

from serving.controllers.inference import OPTIONAL_CHILDREN, InferenceController
from serving.kube import Watches
from serving.objects import Object
from serving.resources import kinds
from tests.fakes.kube import FakeKube
from tests.fakes.surroundings import NS, inference, predictor, ready_version
from tests.faults.controllers.test_inference_converges import around, final_state, is_settled
from tests.rig.control_plane.convergence import QUICK, Case, until


def arrange() -> FakeKube:
    api = FakeKube()
    for name in ("digits-v1", "digits-v2"):
        api.add(kinds.MODEL_VERSION, ready_version(name))
    api.add(kinds.INFERENCE, inference(predictor("stable", "digits-v1", prefetch=True)))
    return api


async def control(api: FakeKube) -> None:
    kube = api.client("inference")
    watches = Watches(kube)
    controller = InferenceController(kube, QUICK, watches, served=OPTIONAL_CHILDREN)
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.run())
        group.create_task(watches.run())


def has_its_daemon_set(api: FakeKube) -> bool:
    names = [
        {each["metadata"]["name"] for each in api.find(kind)} for kind in (kinds.DEPLOYMENT, kinds.DAEMON_SET)
    ]
    return is_settled(api, 1) and names[0] == names[1]


async def story(api: FakeKube) -> Object:
    """Create, and replace the version. Return the final state."""
    await until(lambda: has_its_daemon_set(api), "created")
    replaced = [predictor("stable", "digits-v2", prefetch=True)]
    api.change(kinds.INFERENCE, NS, "digits", {"spec": {"predictors": replaced}})
    await until(lambda: is_settled(api, 1) and has_its_daemon_set(api), "replaced")
    (stored,) = api.find(kinds.DAEMON_SET)
    return {**final_state(api), "DaemonSet": (stored["metadata"]["name"], stored["spec"])}


CASE = Case(arrange, control, around, story)


@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer-lost"])
async def test_daemon_set_is_the_same_when_each_write_fails_in_turn(*, done: bool) -> None:
    assert await CASE.survives_failures(done=done) > 10


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_daemon_set_is_the_same_when_the_controller_is_killed_at_each_write_in_turn(
    *, done: bool
) -> None:
    assert await CASE.survives_kills(done=done) > 10
