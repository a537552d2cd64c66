"""The children and status of an Inference whose predictors scale to zero."""

import pytest

from serving.objects import Object
from serving.planning.inference import planner
from serving.planning.inference.plan import Ensure
from serving.resources import names
from serving.resources.kubernetes import conditions
from tests.fakes.inference_world import NOW, InferenceWorld
from tests.fakes.surroundings import predictor

ON_DEMAND = {
    "autoScale": {"minReplicas": 0, "maxReplicas": 4, "behavior": {"scaleToZero": {"idleSeconds": 30}}}
}


def ready(world: InferenceWorld) -> Object:
    return dict(conditions.find(world.inference["status"]["conditions"], "Ready") or {})


def arms(world: InferenceWorld) -> dict[str, str]:
    return {p["name"]: p["reason"] for p in world.inference["status"]["predictors"]}


def labelled(world: InferenceWorld) -> set[str]:
    return {
        kind
        for kind, children in world.children.items()
        for child in children.values()
        if names.ON_DEMAND_LABEL in child["metadata"]["labels"]
    }


def scaling(world: InferenceWorld) -> Object:
    (scaler,) = world.children["Autoscaler"].values()
    return dict(scaler["spec"])


def at_zero(*predictors: Object) -> InferenceWorld:
    world = InferenceWorld(*predictors)
    world.settle()
    world.size()
    world.ready()
    world.settle()
    return world


def replicas(world: InferenceWorld) -> list[int]:
    return sorted(d["spec"]["replicas"] for d in world.deployments.values())


def test_scale_to_zero_predictor_starts_one_replica_until_it_is_proven() -> None:
    world = InferenceWorld(predictor("a", "v1", **ON_DEMAND))
    world.plan()
    assert replicas(world) == [1]
    (scaler,) = world.children["Autoscaler"].values()
    assert scaler["spec"]["minReplicas"] == 1, "sized to zero before it was proven"
    world.settle()
    assert (scaler := next(iter(world.children["Autoscaler"].values())))["spec"]["minReplicas"] == 0
    assert scaler["spec"]["behavior"] == {"scaleToZero": {"idleSeconds": 30, "prewarm": True}}
    assert labelled(world) == {"Route", "Service", "Autoscaler"}
    (backend,) = world.served["backends"]
    assert (backend["onDemand"], backend["autoscaler"]) == (True, scaler["metadata"]["name"])


def test_schedule_scales_to_zero_only_once_the_revision_is_proven() -> None:
    night = {"name": "night", "start": "0 22 * * *", "duration": "8h", "minReplicas": 0}
    world = InferenceWorld(predictor("a", "v1", autoScale={"maxReplicas": 4, "schedules": [night]}))
    world.plan()
    assert scaling(world)["schedules"][0]["minReplicas"] == 1, "sized to zero before it was proven"
    world.settle()
    assert scaling(world)["schedules"] == [{**night, "timeZone": "UTC"}]
    assert labelled(world) == {"Route", "Service", "Autoscaler"}


def test_field_removed_from_a_predictor_is_removed_from_its_autoscaler() -> None:
    fields = {"risk": 2, "metrics": [{"type": "QPS", "target": 50}], "behavior": {"scaleDown": {}}}
    world = InferenceWorld(predictor("a", "v1", autoScale={"maxReplicas": 4, **fields}))
    world.settle()
    assert scaling(world)["metrics"] == [{"type": "QPS", "name": "", "target": "50"}]
    world.edit(predictor("a", "v1", autoScale={"maxReplicas": 4}))
    world.settle()
    assert scaling(world).keys() == {"scaleTargetRef", "managed", "minReplicas", "maxReplicas", "prediction"}


def test_no_child_is_labelled_without_a_scale_to_zero_predictor() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.settle()
    assert labelled(world) == set()
    assert world.served["backends"][0].keys().isdisjoint({"onDemand", "autoscaler"})


def test_inference_stays_ready_when_all_arms_are_at_zero() -> None:
    world = at_zero(predictor("a", "v1", **ON_DEMAND), predictor("b", "v1", **ON_DEMAND))
    assert (ready(world)["status"], ready(world)["reason"]) == ("True", "ScaledToZero")
    assert arms(world) == {"a": "ScaledToZero", "b": "ScaledToZero"}


def test_inference_is_ready_as_usual_when_only_one_arm_is_at_zero() -> None:
    world = at_zero(predictor("a", "v1", **ON_DEMAND), predictor("b", "v1"))
    assert (ready(world)["status"], ready(world)["reason"]) == ("True", "Ready")
    assert arms(world) == {"a": "ScaledToZero", "b": "Ready"}


def test_waking_arm_stays_ready_until_its_pod_has_a_problem() -> None:
    world = at_zero(predictor("a", "v1", **ON_DEMAND))
    (deployment,) = world.deployments.values()
    deployment["spec"]["replicas"] = 1
    world.plan()
    assert (ready(world)["status"], arms(world)) == ("True", {"a": "Waking"})
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    pod = {
        "metadata": {"name": "p"},
        "status": {"containerStatuses": [{"name": "predictor", "state": waiting}]},
    }
    plan = planner.plan(world.now(pods={deployment["metadata"]["name"]: [pod]}), NOW)
    assert plan.status is not None
    condition = conditions.find(plan.status["conditions"], "Ready") or {}
    assert (condition["status"], condition["reason"]) == ("False", "ErrImagePull")


def test_waking_arm_stays_ready_when_an_earlier_pod_was_evicted() -> None:
    world = at_zero(predictor("a", "v1", **ON_DEMAND))
    (deployment,) = world.deployments.values()
    deployment["spec"]["replicas"] = 1
    ended = {"terminated": {"exitCode": 137, "reason": "Error"}}
    evicted = {
        "metadata": {"name": "p"},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "predictor", "state": ended}]},
    }
    world.seen["pods"] = {deployment["metadata"]["name"]: [evicted]}
    world.plan()
    assert (ready(world)["status"], arms(world)) == ("True", {"a": "Waking"})


def test_status_of_a_waking_arm_may_wait_and_that_of_a_ready_one_may_not() -> None:
    world = at_zero(predictor("a", "v1", **ON_DEMAND))
    (deployment,) = world.deployments.values()
    deployment["spec"]["replicas"] = 1
    assert planner.plan(world.now(), NOW).status_may_wait
    world.ready()
    assert not planner.plan(world.now(), NOW).status_may_wait


def test_new_revision_of_a_predictor_at_zero_is_proven_and_takes_over() -> None:
    world = at_zero(predictor("a", "v1", **ON_DEMAND))
    (old,) = world.deployments
    world.edit(predictor("a", "v2", **ON_DEMAND))
    world.plan()
    assert replicas(world) == [0, 1]
    world.settle()
    assert old not in world.deployments
    assert {s["backend"] for s in world.served["segments"]} == set(world.deployments)
    assert ready(world)["status"] == "True"


def test_replaced_revision_at_zero_restarts_when_the_spec_returns_to_it() -> None:
    world = at_zero(predictor("a", "v1", **ON_DEMAND))
    (old,) = world.deployments
    world.edit(predictor("a", "v2", **ON_DEMAND))
    world.go_on()
    world.go_on()
    world.alive = False  # nothing is retired while no gateway is alive
    world.plan()
    (serving,) = {s["backend"] for s in world.children["Route"]["digits"]["spec"]["segments"]}
    assert serving != old
    assert old in world.deployments
    world.alive = True
    world.edit(predictor("a", "v1", **ON_DEMAND))
    world.settle()
    assert set(world.deployments) == {old}
    assert {s["backend"] for s in world.served["segments"]} == {old}


def test_removed_arm_at_zero_is_deleted() -> None:
    world = at_zero(predictor("a", "v1", **ON_DEMAND), predictor("b", "v1", **ON_DEMAND))
    world.edit(predictor("b", "v1", **ON_DEMAND))
    world.settle()
    assert len(world.deployments) == len(world.children["Autoscaler"]) == 1
    assert arms(world) == {"b": "ScaledToZero"}
    assert ready(world)["reason"] == "ScaledToZero"


@pytest.mark.parametrize("version", ["v1", "unheard-of"])
def test_requests_wait_for_the_first_replica_when_scale_to_zero_is_removed(
    version: str,
) -> None:
    world = at_zero(predictor("a", "v1", **ON_DEMAND))
    world.unready = {"unheard-of"}
    world.edit(predictor("a", version))
    world.plan()
    (backend, *_) = world.children["Route"]["digits"]["spec"]["backends"]
    assert backend["onDemand"]
    assert {"Route", "Service"} <= labelled(world)
    world.settle()
    world.unready = set()
    world.settle()
    assert labelled(world) == set()
    assert not any(b.get("onDemand") for b in world.served["backends"])
    assert replicas(world) == [1]


def test_service_keeps_its_label_until_the_route_has_lost_its_own() -> None:
    world = at_zero(predictor("a", "v1", **ON_DEMAND))
    world.edit(predictor("a", "v1"))
    world.plan()
    world.size()
    world.ready()
    world.plan()
    assert not any(b.get("onDemand") for b in world.children["Route"]["digits"]["spec"]["backends"])
    assert labelled(world) == {"Service"}
    world.accept()
    world.plan()
    assert labelled(world) == set()


def test_service_of_the_serving_revision_is_labelled_during_a_rollout() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.settle()
    (old,) = world.deployments
    world.broken = {"v2"}
    world.edit(predictor("a", "v2", **ON_DEMAND))
    plan = planner.plan(world.now(), NOW)
    services = {
        a.object["metadata"]["name"]: a.object["metadata"]["labels"]
        for a in plan.actions
        if isinstance(a, Ensure) and a.kind.kind == "Service"
    }
    assert names.ON_DEMAND_LABEL in services[old]
