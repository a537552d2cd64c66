"""What the Autoscaler controller says, and when."""

import asyncio
from typing import Any, cast

import pytest

from autoscaler.controller import AutoscalerController
from autoscaler.decision_values import Decision
from autoscaler.policy.config import PolicyConfig
from autoscaler.state.target_state import TargetState
from autoscaler.targets import ScaleTarget, Targets
from autoscaler.writer import Writer
from serving import errors
from serving.kube import EventRecorder, Watches
from serving.resources import kinds
from serving.resources.kubernetes.conditions import Condition
from serving.settings import ControllerSettings
from tests.fakes.kube import FakeKube
from tests.objects.deployments import deployment
from tests.rig.control_plane.convergence import running, until

AUTOSCALER: dict[str, Any] = {
    "metadata": {"name": "a", "namespace": "default"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "minReplicas": 1,
        "maxReplicas": 1,
    },
}


async def test_uncounted_replicas_are_not_reported() -> None:
    api = FakeKube()
    await api.create(kinds.DEPLOYMENT, deployment("d"))
    await api.create(kinds.AUTOSCALER, AUTOSCALER)
    before = len(api.writes)
    kube = api.client("autoscaler")
    watches = Watches(kube)
    controller = AutoscalerController(kube, ControllerSettings(), watches)
    running = asyncio.gather(controller.run(), watches.run())
    try:
        async with asyncio.timeout(10):
            await asyncio.sleep(0)
            api.change(kinds.DEPLOYMENT, "default", "d", {"status": {"replicas": 1}})
            while not api.find(kinds.AUTOSCALER)[0].get("status"):
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert api.find(kinds.AUTOSCALER)[0]["status"]["currentReplicas"] == 1
    assert len(api.writes) == before + 1


@pytest.mark.parametrize("edit", [{"desiredReplicas": 7}, {"reason": "mine"}], ids=["urgent", "not urgent"])
async def test_status_is_written_again_when_others_have_changed_it(edit: dict[str, Any]) -> None:
    api = FakeKube()
    api.add(kinds.DEPLOYMENT, deployment("d"))
    api.change(kinds.DEPLOYMENT, "default", "d", {"status": {"replicas": 1, "readyReplicas": 1}})
    api.add(kinds.AUTOSCALER, AUTOSCALER)
    kube = api.client("autoscaler")
    watches = Watches(kube)
    controller = AutoscalerController(kube, ControllerSettings(), watches)

    def status() -> dict[str, Any]:
        return {**(api.find(kinds.AUTOSCALER)[0].get("status") or {}), "decision": "with its time"}

    async with running(controller.run(), watches.run()):
        await until(lambda: status().get("currentReplicas") == 1)
        before, user = status(), api.client("user")
        await user.patch(kinds.AUTOSCALER, "default", "a", {"status": edit}, subresource="status")
        await until(lambda: status() == before)


async def test_status_of_another_is_replaced_by_the_retry_when_the_first_write_failed() -> None:
    api = FakeKube()
    api.add(kinds.AUTOSCALER, AUTOSCALER)
    kube = api.client("autoscaler")
    writer = Writer(kube, EventRecorder(kube, "autoscaler"), cast("Targets", None))
    state = TargetState(PolicyConfig(), decision=Decision(1, "Load", "1 replica"))
    target = ScaleTarget(kinds.DEPLOYMENT, deployment("d"), [], is_ours=False)

    async def report() -> None:
        (stored,) = api.find(kinds.AUTOSCALER)
        active = Condition("ScalingActive", "True", "Sized")
        await writer.report(stored, target, state, active, [], monotonic_now=0.0)

    await report()
    own = dict(api.find(kinds.AUTOSCALER)[0]["status"])
    await api.client("user").patch(
        kinds.AUTOSCALER, "default", "a", {"status": {"reason": "mine"}}, subresource="status"
    )
    api.fail_next(errors.Unavailable("away"))
    with pytest.raises(errors.Unavailable):
        await report()
    await report()
    status = api.find(kinds.AUTOSCALER)[0]["status"]
    assert {**status, "decision": None} == {**own, "decision": None}


async def test_count_of_another_autoscaler_is_kept_when_it_comes_after_the_read() -> None:
    api = FakeKube()
    api.add(kinds.AUTOSCALER, {**AUTOSCALER, "spec": {**AUTOSCALER["spec"], "managed": False}})
    kube = api.client("autoscaler")
    writer = Writer(kube, EventRecorder(kube, "autoscaler"), cast("Targets", None))
    (read,) = api.find(kinds.AUTOSCALER)
    await api.client("hpa").patch(kinds.AUTOSCALER, "default", "a", {"spec": {"replicas": 5}})
    with pytest.raises(errors.Conflict):
        await writer.count_of_another(read, 1)
    (stored,) = api.find(kinds.AUTOSCALER)
    assert await writer.count_of_another(stored, 1) == stored["spec"]["replicas"] == 5
