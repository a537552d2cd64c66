import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.objects import Object
from serving.planning.inference import inference_state, planner
from serving.planning.inference import status as statuses
from serving.resources.kubernetes import conditions
from tests.fakes.inference_world import GATEWAY, NOW, InferenceWorld
from tests.fakes.surroundings import predictor


def settled(*predictors: Object) -> InferenceWorld:
    world = InferenceWorld(*predictors)
    world.settle()
    return world


def planned_condition(world: InferenceWorld, type_: str) -> tuple[str, str, str]:
    plan = planner.plan(world.now(), NOW)
    status = plan.status or world.inference["status"]
    condition = conditions.find(status["conditions"], type_)
    assert condition is not None
    return condition["status"], condition["reason"], condition["message"]


def ready(status: str, reason: str, message: str = "") -> Object:
    condition = {"type": "Ready", "status": status, "reason": reason, "message": message}
    return {"conditions": [condition]}


def test_status_of_a_settled_inference_has_url_traffic_and_arm_states() -> None:
    status = settled(predictor("a", "v1", 90), predictor("b", "v2", 10)).inference["status"]
    assert status["url"] == "http://127.0.0.1:8080/default/digits"
    assert status["traffic"] == "a 90%, b 10%"
    assert [
        (p["name"], p["trafficPercent"], p["readyReplicas"], p["reason"]) for p in status["predictors"]
    ] == [
        ("a", 90.0, 1, "Ready"),
        ("b", 10.0, 1, "Ready"),
    ]
    assert {
        c["type"]: c["status"] for c in status["conditions"] if c["type"] != "ScalingActive"
    } == dict.fromkeys(("Ready", "ModelReady", "PredictorsReady", "RoutesReady"), "True")


def test_effective_percent_comes_from_a_live_gateway() -> None:
    world = settled(predictor("a", "v1", 90), predictor("b", "v2", 10))
    weights = [{"arm": "a", "percent": 0.0}, {"arm": "b", "percent": 100.0}]
    entry = world.children["Route"]["digits"]["status"]["gateways"][0]
    entry["weights"] = weights
    assert statuses.effective_percent(inference_state.derive(world.now())) == {"b": 100.0}
    world.alive = False
    assert statuses.effective_percent(inference_state.derive(world.now())) == {"a": 90.0, "b": 10.0}, (
        "the status of a dead gateway does not count"
    )


def test_inference_is_not_ready_while_no_live_gateway_serves() -> None:
    world = settled(predictor("a", "v1"))
    (gateway,) = world.now().gateways
    world.problems = {gateway: "Envoy does not answer"}
    message = f"gateway {gateway}: Envoy does not answer"
    assert planned_condition(world, "Ready") == ("False", "GatewayNotServing", message)
    world.problems = {"of-another": "Envoy does not answer"}
    assert planned_condition(world, "Ready")[0] == "True"


def test_scaling_condition_names_ignored_standby_replicas_on_a_cluster() -> None:
    world = settled(predictor("a", "v1", autoScale={"standby": 2}), predictor("b", "v2"))
    ignored = (
        "predictor a: autoScale.standby is 2, and has no effect on a cluster, which keeps no standby replicas"
    )
    assert planned_condition(world, "ScalingActive")[2] == f"predictor a has not been sized yet; {ignored}"
    for autoscaler in world.children["Autoscaler"].values():
        autoscaler["status"] = ready("True", "FixedCount")
    assert planned_condition(world, "ScalingActive") == ("True", "Sized", ignored)
    world.seen = {"daemon_sets": None}
    assert planned_condition(world, "ScalingActive") == ("True", "Sized", "")


def test_ready_repeats_the_first_condition_that_is_not_true() -> None:
    world = settled(predictor("a", "v1"))
    world.alive = False
    assert planned_condition(world, "Ready") == ("False", "NoGateway", "no gateway is alive")
    world.alive = True
    world.unready = {"v2"}
    world.edit(predictor("a", "v2"))
    assert planned_condition(world, "Ready")[1] == "ModelVersionNotFound"
    assert planned_condition(world, "PredictorsReady")[1] == "ModelVersionNotFound"


def test_route_condition_repeats_the_message_of_the_gateway() -> None:
    world = settled(predictor("a", "v1"))
    entry = world.children["Route"]["digits"]["status"]["gateways"][0]
    entry |= {"acceptedGeneration": 0, "message": "malformed address"}
    status, reason, message = planned_condition(world, "RoutesReady")
    assert (status, reason) == ("False", "RouteNotAccepted")
    assert message == f"not accepted yet by gateway {GATEWAY} (malformed address)"


def test_inference_is_not_ready_when_its_only_proven_replica_crashed() -> None:
    world = settled(predictor("a", "v1"))
    next(iter(world.deployments.values()))["status"] = {"replicas": 1, "readyReplicas": 0}
    assert planned_condition(world, "Ready")[:2] == ("False", "ReplicasNotReady")


@pytest.mark.parametrize(
    ("old_status", "new_status", "reason", "warning"),
    [
        ({}, ready("True", "Ready"), "Ready", False),
        (ready("True", "Ready"), ready("False", "CrashLoopBackOff", "why"), "CrashLoopBackOff", True),
        (ready("True", "Ready"), ready("False", "ReplicasNotReady", "why"), "ReplicasNotReady", False),
        (ready("False", "Probing"), ready("False", "ProbeFailed", "503"), "ProbeFailed", True),
    ],
)
def test_transition_emits_an_event_and_a_warning_when_it_needs_action(
    old_status: Object, new_status: Object, reason: str, *, warning: bool
) -> None:
    (event,) = statuses.events(old_status, new_status)
    assert (event.reason, event.type == "Warning") == (reason, warning)
    assert event.message


def test_repeated_reason_emits_no_event_and_a_proven_revision_does() -> None:
    old = ready("False", "ReplicasNotReady", "0 of 2") | {"predictors": [{"name": "a", "revision": "r1"}]}
    new = ready("False", "ReplicasNotReady", "1 of 2") | {"predictors": [{"name": "a", "revision": "r1"}]}
    assert statuses.events(old, new) == ()
    proven = {**new, "predictors": [{"name": "a", "revision": "r2"}]}
    assert [a.reason for a in statuses.events(old, proven)] == ["RevisionProven"]
    assert statuses.events(old, {**new, "predictors": [{"name": "a", "revision": ""}]}) == ()


@pytest.mark.parametrize("old_status", [{}, ready("False", "ReplicasNotReady")])
def test_first_rollout_in_progress_emits_no_event(old_status: Object) -> None:
    assert statuses.events(old_status, ready("False", "RouteNotAccepted")) == ()
    assert [a.reason for a in statuses.events(old_status, ready("False", "NoGateway"))] == ["NoGateway"]
    assert [a.reason for a in statuses.events(ready("False", "NoGateway"), ready("False", "Probing"))] == [
        "Probing"
    ]


def test_ready_event_names_the_revisions_proven_at_the_same_time() -> None:
    new = ready("True", "Ready") | {"predictors": [{"name": "a", "revision": "r1"}]}
    (event,) = statuses.events({}, new)
    assert (event.reason, event.type == "Warning") == ("Ready", False)
    assert event.message == "all predictors are proven and routed; a: revision r1"


@settings(max_examples=40)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=6).filter(any))
def test_traffic_percentages_of_the_arms_sum_to_a_hundred(weights: list[int]) -> None:
    world = settled(*(predictor(f"a{i}", "v1", weight) for i, weight in enumerate(weights)))
    shares = [p["trafficPercent"] for p in world.inference["status"]["predictors"]]
    assert sum(shares) == pytest.approx(100.0)
    assert [share > 0 for share in shares] == [weight > 0 for weight in weights]
