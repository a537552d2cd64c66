"""The Autoscaler controller ends with the same objects when any write fails or it is killed there."""

import asyncio

import pytest

from autoscaler.controller import AutoscalerController
from serving.kube import Watches
from serving.objects import Object
from serving.resources import kinds
from tests.fakes.kube import FakeKube
from tests.objects.deployments import deployment
from tests.rig.control_plane.convergence import QUICK, Case, until

NS = "default"


def autoscaler(name: str, target: str, minimum: int, maximum: int) -> Object:
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
        "minReplicas": minimum,
        "maxReplicas": maximum,
    }
    return {"metadata": {"name": name, "namespace": NS}, "spec": spec}


def arrange() -> FakeKube:
    api = FakeKube()
    api.add(kinds.DEPLOYMENT, deployment("small", 1))
    api.add(kinds.AUTOSCALER, autoscaler("small", "small", 2, 4))
    api.add(kinds.AUTOSCALER, autoscaler("early", "late", 1, 3))
    return api


async def control(api: FakeKube) -> None:
    kube = api.client("autoscaler")
    watches = Watches(kube)
    controller = AutoscalerController(kube, QUICK, watches)
    await asyncio.gather(controller.run(), watches.run())


async def node(api: FakeKube) -> None:
    """Run the desired number of replicas."""
    while True:
        for target in api.find(kinds.DEPLOYMENT):
            status = {"replicas": target["spec"]["replicas"]}
            api.change(kinds.DEPLOYMENT, NS, target["metadata"]["name"], {"status": status})
        await asyncio.sleep(0.001)


def final_state(api: FakeKube) -> Object:
    result: Object = {d["metadata"]["name"]: d["spec"]["replicas"] for d in api.find(kinds.DEPLOYMENT)}
    for autoscaler_object in api.find(kinds.AUTOSCALER):
        status = dict(autoscaler_object.get("status") or {})
        condition_list = [
            (c["type"], c["status"], c["observedGeneration"]) for c in status.pop("conditions", [])
        ]
        # These depend on the last reconciliation and its process: a killed writer loses its decisions.
        for name in ("lastScaleTime", "reason", "decision", "decisions"):
            status.pop(name, None)
        result[f"Autoscaler {autoscaler_object['metadata']['name']}"] = (status, condition_list)
    return result


async def settled(api: FakeKube, **replicas: int) -> None:
    def is_settled() -> bool:
        state = final_state(api)
        sized = {d["metadata"]["name"]: d["spec"]["replicas"] for d in api.find(kinds.DEPLOYMENT)}
        scalers = api.find(kinds.AUTOSCALER)
        counts = {
            a["spec"]["scaleTargetRef"]["name"]: (a.get("status") or {}).get("currentReplicas")
            for a in scalers
        }
        current = all(
            (a.get("status") or {}).get("observedGeneration") == a["metadata"]["generation"] for a in scalers
        )
        return bool(state) and current and sized == replicas == {name: counts[name] for name in replicas}

    await until(is_settled, f"{replicas}")


async def story(api: FakeKube) -> Object:
    await settled(api, small=2)
    api.add(kinds.DEPLOYMENT, deployment("late", 9))
    await settled(api, small=2, late=3)
    api.change(kinds.AUTOSCALER, NS, "small", {"spec": {"minReplicas": 4}})
    await settled(api, small=4, late=3)
    api.remove(kinds.DEPLOYMENT, NS, "late")
    await until(
        lambda: ("Ready", "False", 1) in final_state(api)["Autoscaler early"][1], "its target is missed"
    )
    return final_state(api)


CASE = Case(arrange, control, node, story)


@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer-lost"])
async def test_objects_are_the_same_when_each_write_fails_in_turn(*, done: bool) -> None:
    assert await CASE.survives_failures(done=done) > 8


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_objects_are_the_same_when_the_controller_is_killed_at_each_write_in_turn(
    *, done: bool
) -> None:
    assert await CASE.survives_kills(done=done) > 8
