from typing import Any

import pytest

from serving.objects import Object
from serving.planning.inference import arms, inference_state
from serving.resources.inference import InferenceSpec
from tests.fakes.inference_world import InferenceWorld
from tests.fakes.surroundings import predictor, ready_version


def test_a_replacement_needs_all_its_replicas_and_a_first_revision_one() -> None:
    bounds = {"autoScale": {"minReplicas": 2, "maxReplicas": 2}}
    world = InferenceWorld(predictor("a", "v1", **bounds))
    world.plan()
    (first_revision,) = world.deployments.values()
    first_revision["status"] = {"readyReplicas": 1}
    world.accept()
    (arm,) = _read(world)
    assert arm.serving == first_revision["metadata"]["name"]
    world.settle()
    world.edit(predictor("a", "v2", **bounds))
    world.plan()
    world.accept()
    replacement = next(d for d in world.deployments.values() if d is not first_revision)
    replacement["status"] = {"readyReplicas": 1}
    (arm,) = _read(world)
    assert arm.rollout_problem is not None
    assert arm.rollout_problem.reason == "ReplicasNotReady"
    assert arm.serving == first_revision["metadata"]["name"]
    assert arm.candidate is not None
    assert arm.candidate.name == replacement["metadata"]["name"]


@pytest.mark.parametrize(
    "status",
    [
        {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "observedGeneration": 1},
        {"replicas": 2, "readyReplicas": 1, "updatedReplicas": 1, "observedGeneration": 2},
        {"replicas": 1, "readyReplicas": 1, "observedGeneration": 2},
    ],
)
def test_a_candidate_is_not_proven_when_its_replicas_may_have_an_edited_template(status: Object) -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.plan()
    (deployment,) = world.deployments.values()
    deployment["metadata"]["generation"] = 2
    deployment["status"] = status
    world.accept()
    (arm,) = _read(world)
    assert (arm.serving, arm.rollout_problem and arm.rollout_problem.reason) == ("", "ReplicasNotReady")
    deployment["status"] = {**status, "replicas": 1, "updatedReplicas": 1, "observedGeneration": 2}
    (arm,) = _read(world)
    assert (arm.serving, arm.rollout_problem) == (deployment["metadata"]["name"], None)
    world.plan()
    deployment["metadata"]["generation"] = 3  # it is scaled
    (arm,) = _read(world)
    assert arm.serving == deployment["metadata"]["name"]


def _edited_candidate() -> tuple[InferenceWorld, Object]:
    """Return a world whose only candidate has an edited image, and its Deployment."""
    world = InferenceWorld(predictor("a", "v1"))
    world.plan()
    (deployment,) = world.deployments.values()
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "other:1"
    return world, deployment


def test_a_candidate_is_not_proven_while_its_template_is_edited() -> None:
    world, deployment = _edited_candidate()
    ready = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
    deployment["status"] = {**ready, "observedGeneration": deployment["metadata"].get("generation", 0)}
    world.accept()
    (arm,) = _read(world)
    assert (arm.serving, arm.rollout_problem and arm.rollout_problem.reason) == ("", "TemplateEdited")
    (desired,) = (arm.desired for arm in _read(world))
    assert desired is not None
    deployment["spec"]["template"] = desired.template
    (arm,) = _read(world)
    assert arm.serving == deployment["metadata"]["name"]


def test_probe_of_an_edited_candidate_returns_once_no_result_and_no_replica_of_the_edit_remains() -> None:
    world, deployment = _edited_candidate()
    assert _is_probed(world)
    world.ready()
    world.accept()
    world.plan()
    assert not _is_probed(world)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "other:1"
    world.plan()
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] != "other:1"
    deployment["status"] = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "observedGeneration": 1}
    world.accept()
    world.plan()
    assert not _is_probed(world), "replicas of the edit remain"
    deployment["status"] = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "observedGeneration": 2}
    accepted = world.route
    assert accepted is not None
    accepted["metadata"]["generation"] += 1
    world.plan()
    assert not _is_probed(world), "a gateway may hold the result of the edit"
    world.accept()
    world.plan()
    assert _is_probed(world)
    (arm,) = _read(world)
    assert not arm.serving
    world.accept()
    world.plan()
    (arm,) = _read(world)
    assert arm.serving == deployment["metadata"]["name"]


def test_candidate_is_probed_when_a_webhook_edits_every_template() -> None:
    world, deployment = _edited_candidate()
    world.ready()
    world.accept()
    world.plan()
    assert not _is_probed(world)
    world.seen = {"put_back_blocked": {deployment["metadata"]["name"]}}
    world.seen |= {"put_back_in_vain": {deployment["metadata"]["name"]}}
    world.settle()
    (arm,) = _read(world)
    assert arm.serving == deployment["metadata"]["name"]


@pytest.mark.parametrize(
    "container", [{"securityContext": "root"}, {"readinessProbe": {"httpGet": None}}, {"env": "A=1"}]
)
def test_arm_whose_template_cannot_be_rendered_blocks_no_other(container: Object) -> None:
    own = {"containers": [{"name": "predictor", **container}]}
    world = InferenceWorld(predictor("good", "v1"), predictor("bad", "v1", template=own))
    good, bad = _read(world)
    assert good.desired is not None
    assert bad.desired is None
    assert bad.rollout_problem is not None
    assert bad.rollout_problem.reason == "TemplateInvalid"
    assert bad.rollout_problem.message.startswith("the Pod template cannot be rendered: ")


def test_probes_wait_for_the_gateways_when_the_route_is_rewritten() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.plan()
    world.accept()
    world.ready()
    (arm,) = _read(world)
    assert arm.once_routed(is_accepted=True) == arm
    problem = arm.once_routed(is_accepted=False).rollout_problem
    assert problem is not None
    assert problem.reason == "RouteNotAccepted"


def _is_probed(world: InferenceWorld) -> bool:
    assert world.route is not None
    (backend,) = world.route["spec"]["backends"]
    return "probe" in backend


def _read(world: InferenceWorld) -> tuple[arms.Arm, ...]:
    spec = InferenceSpec.model_validate(world.inference["spec"])
    return arms.read(inference_state.derive(world.now()), spec)


def _version(**status: Any) -> Object:
    version = ready_version("v1")
    return {**version, "status": {**version["status"], **status}}


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (None, "ModelVersionNotFound"),
        ({"metadata": {"name": "v1"}, "spec": {}}, "ModelVersionBuilding"),
        (_version(phase="Building"), "ModelVersionBuilding"),
        (_version(phase="Ready", image=""), "ModelVersionBuilding"),
        (_version(phase="Failed"), "ModelVersionFailed"),
        (_version(framework="torch"), "FrameworkMismatch"),
    ],
)
def test_version_that_cannot_be_served_has_a_reason(version: Object | None, reason: str) -> None:
    problem = arms.model_problem("sklearn", "v1", version)
    assert problem is not None
    assert problem.reason == reason
    assert "v1" in problem.message


def test_custom_container_serves_a_ready_version_of_any_framework() -> None:
    assert arms.model_problem("sklearn", "v1", _version()) is None
    assert arms.model_problem("sklearn", "v1", _version(framework="")) is None
    assert arms.model_problem("custom", "v1", _version(framework="torch")) is None


def test_problem_repeats_the_message_of_the_image_builder() -> None:
    ready = {"type": "Ready", "status": "False", "message": "Job train has not completed yet"}
    problem = arms.model_problem("sklearn", "v1", _version(phase="Pending", conditions=[ready]))
    assert problem is not None
    assert problem.message == "ModelVersion v1 is not ready yet: Job train has not completed yet"
