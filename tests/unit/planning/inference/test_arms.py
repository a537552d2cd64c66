from typing import Any

import pytest

from serving.objects import Object
from serving.planning.inference import arms
from serving.planning.inference.observed import World
from serving.resources.inference import InferenceSpec
from tests.fakes.inference_world import GATEWAY, InferenceWorld
from tests.fakes.surroundings import predictor, ready_version


def settled(*predictors: Object) -> InferenceWorld:
    world = InferenceWorld(*predictors)
    world.settle()
    return world


def accepting(world: World, generation: int, **more: Any) -> World:
    assert world.route is not None
    world.route["status"] = {"gateways": [{"name": GATEWAY, "acceptedGeneration": generation, **more}]}
    return world


def test_a_route_is_accepted_when_every_live_gateway_has_its_generation_and_there_is_one() -> None:
    world = settled(predictor("a", "v1"))
    assert arms.is_accepted(world.now())
    generation = world.children["Route"]["digits"]["metadata"]["generation"]
    behind = accepting(world.now(), generation - 1, message="cluster: bad address")
    assert arms.laggards(behind) == {GATEWAY: "cluster: bad address"}
    assert not arms.is_accepted(behind)
    world.alive = False
    assert arms.laggards(world.now()) == {}
    assert not arms.is_accepted(world.now()), "without a gateway nothing has been accepted"


def test_without_a_route_every_gateway_is_behind() -> None:
    assert arms.laggards(InferenceWorld(predictor("a", "v1")).now()) == {GATEWAY: ""}


def test_what_serves_is_known_from_the_ring_and_without_weight_from_the_status() -> None:
    world = settled(predictor("a", "v1", 1), predictor("b", "v2", 0))
    serving = arms.serving_backends(world.now())
    assert {name: backend.startswith(f"digits-{name}-") for name, backend in serving.items()} == {
        "a": True,
        "b": True,
    }
    world.inference["status"] = {}
    assert list(arms.serving_backends(world.now())) == ["a"], "a lost status costs only another proof"


def test_an_arm_that_left_the_spec_serves_until_the_ring_has_it_no_more() -> None:
    world = settled(predictor("a", "v1"), predictor("b", "v2"))
    world.edit(predictor("a", "v1"))
    assert set(arms.serving_backends(world.now())) == {"a", "b"}


def test_a_replacement_needs_all_its_replicas_and_a_first_revision_one() -> None:
    bounds = {"autoScale": {"minReplicas": 2, "maxReplicas": 2}}
    world = InferenceWorld(predictor("a", "v1", **bounds))
    world.plan()
    (first,) = world.deployments.values()
    first["status"] = {"readyReplicas": 1}
    world.accept()
    (arm,) = _read(world)
    assert arms.is_probe_due(arm)
    world.settle()
    world.edit(predictor("a", "v2", **bounds))
    world.plan()
    world.accept()
    second = next(d for d in world.deployments.values() if d is not first)
    second["status"] = {"readyReplicas": 1}
    (arm,) = _read(world)
    assert arm.rollout_problem is not None
    assert arm.rollout_problem.reason == "ReplicasNotReady"
    assert arm.serving == first["metadata"]["name"]
    assert arm.candidate is not None
    assert arm.candidate.name == second["metadata"]["name"]


def _read(world: InferenceWorld) -> tuple[arms.Arm, ...]:
    now = world.now()
    return arms.read(now, InferenceSpec.model_validate(world.inference["spec"]), arms.serving_backends(now))


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
def test_a_version_that_cannot_be_served_says_why(version: Object | None, reason: str) -> None:
    problem = arms.model_problem("sklearn", "v1", version)
    assert problem is not None
    assert problem.reason == reason
    assert "v1" in problem.message


def test_a_built_version_can_be_served_and_by_a_custom_container_whatever_its_framework() -> None:
    assert arms.model_problem("sklearn", "v1", _version()) is None
    assert arms.model_problem("sklearn", "v1", _version(framework="")) is None
    assert arms.model_problem("custom", "v1", _version(framework="torch")) is None


def test_the_builders_words_are_passed_on() -> None:
    said = {"type": "Ready", "status": "False", "message": "Job train has not completed yet"}
    problem = arms.model_problem("sklearn", "v1", _version(phase="Pending", conditions=[said]))
    assert problem is not None
    assert problem.message == "ModelVersion v1 is not ready yet: Job train has not completed yet"
