from serving.objects import Object
from serving.planning.inference import inference_state
from serving.planning.inference.inference_state import InferenceState
from serving.planning.inference.plan import Ensure
from serving.planning.inference.replicas import RevisionReplicas
from serving.resources import kinds
from tests.fakes.inference_world import GATEWAY, InferenceWorld
from tests.fakes.surroundings import predictor


def settled(*predictors: Object) -> InferenceWorld:
    world = InferenceWorld(*predictors)
    world.settle()
    return world


def derive(world: InferenceWorld) -> InferenceState:
    return inference_state.derive(world.now())


def route(world: InferenceWorld) -> Object:
    return world.children["Route"]["digits"]


def test_route_is_accepted_when_every_live_gateway_has_its_generation() -> None:
    world = settled(predictor("a", "v1"))
    assert derive(world).is_accepted
    generation = route(world)["metadata"]["generation"]
    status = {"name": GATEWAY, "acceptedGeneration": generation - 1, "message": "cluster: bad address"}
    route(world)["status"] = {"gateways": [status]}
    assert derive(world).lagging == {GATEWAY: "cluster: bad address"}
    assert not derive(world).is_accepted
    world.alive = False
    assert derive(world).lagging == {}
    assert not derive(world).is_accepted, "without a gateway nothing has been accepted"


def test_every_gateway_lags_when_there_is_no_route() -> None:
    assert derive(InferenceWorld(predictor("a", "v1"))).lagging == {GATEWAY: ""}


def test_serving_backends_come_from_the_ring_or_from_the_status() -> None:
    world = settled(predictor("a", "v1", 1), predictor("b", "v2", 0))
    serving = derive(world).serving
    assert {name: backend.startswith(f"digits-{name}-") for name, backend in serving.items()} == {
        "a": True,
        "b": True,
    }
    world.inference["status"] = {}
    assert list(derive(world).serving) == ["a"], "a lost status costs only another proof"


def test_removed_arm_serves_until_it_has_left_the_ring() -> None:
    world = settled(predictor("a", "v1"), predictor("b", "v2"))
    world.edit(predictor("a", "v1"))
    assert set(derive(world).serving) == {"a", "b"}


def test_new_deployment_has_initial_replicas_and_an_existing_one_keeps_its() -> None:
    world = settled(predictor("a", "v1"))
    (name,) = world.deployments
    writes = [
        Ensure(kinds.DEPLOYMENT, {"metadata": {"name": n}}, at_creation={"spec": {"replicas": 3}})
        for n in (name, "new")
    ]
    updated = derive(world).after(writes)
    assert updated.replicas == {name: RevisionReplicas(1, 1, 1), "new": RevisionReplicas(desired=3)}
    assert updated.is_accepted


def test_written_route_is_not_accepted_unless_only_its_labels_changed() -> None:
    world = settled(predictor("a", "v1"))
    spec = route(world)["spec"]
    derived = derive(world)
    relabelled = derived.after([Ensure(kinds.ROUTE, {"metadata": {"labels": {"x": "y"}}, "spec": spec})])
    assert relabelled.is_accepted
    changed = derived.after([Ensure(kinds.ROUTE, {"metadata": {}, "spec": {**spec, "segments": []}})])
    assert changed.lagging == {GATEWAY: ""}
    assert changed.segments == []
