import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.objects import Object
from serving.planning.inference import facts, planner
from serving.planning.inference import status as statuses
from serving.resources import conditions
from tests.fakes.inference_world import GATEWAY, NOW, InferenceWorld
from tests.fakes.surroundings import predictor


def settled(*predictors: Object) -> InferenceWorld:
    world = InferenceWorld(*predictors)
    world.settle()
    return world


def said(world: InferenceWorld, type_: str) -> tuple[str, str, str]:
    plan = planner.plan(world.now(), NOW)
    status = plan.status or world.inference["status"]
    found = conditions.find(status["conditions"], type_)
    assert found is not None
    return found["status"], found["reason"], found["message"]


def ready(status: str, reason: str, message: str = "") -> Object:
    condition = {"type": "Ready", "status": status, "reason": reason, "message": message}
    return {"conditions": [condition]}


def test_a_settled_inference_says_its_address_its_split_and_the_state_of_every_arm() -> None:
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


def test_the_split_is_what_the_gateway_says_it_serves() -> None:
    world = settled(predictor("a", "v1", 90), predictor("b", "v2", 10))
    weights = [{"arm": "a", "percent": 0.0}, {"arm": "b", "percent": 100.0}]
    entry = world.children["Route"]["digits"]["status"]["gateways"][0]
    entry["weights"] = weights
    assert statuses.effective_percent(facts.derive(world.now())) == {"b": 100.0}
    world.alive = False
    assert statuses.effective_percent(facts.derive(world.now())) == {"a": 90.0, "b": 10.0}, (
        "a dead gateway's word does not count"
    )


def test_ready_is_the_first_part_that_is_not() -> None:
    world = settled(predictor("a", "v1"))
    world.alive = False
    assert said(world, "Ready") == ("False", "NoGateway", "no gateway is alive")
    world.alive = True
    world.unready = {"v2"}
    world.edit(predictor("a", "v2"))
    assert said(world, "Ready")[1] == "ModelVersionNotFound"
    assert said(world, "PredictorsReady")[1] == "ModelVersionNotFound"


def test_what_a_gateway_refuses_is_said_in_its_words() -> None:
    world = settled(predictor("a", "v1"))
    entry = world.children["Route"]["digits"]["status"]["gateways"][0]
    entry |= {"acceptedGeneration": 0, "message": "malformed address"}
    status, reason, message = said(world, "RoutesReady")
    assert (status, reason) == ("False", "RouteNotAccepted")
    assert message == f"not accepted yet by gateway {GATEWAY} (malformed address)"


def test_a_crashed_last_replica_makes_it_not_ready_though_the_revision_is_proven() -> None:
    world = settled(predictor("a", "v1"))
    next(iter(world.deployments.values()))["status"] = {"replicas": 1, "readyReplicas": 0}
    assert said(world, "Ready")[:2] == ("False", "ReplicasNotReady")


@pytest.mark.parametrize(
    ("before", "after", "reason", "warning"),
    [
        ({}, ready("True", "Ready"), "Ready", False),
        (ready("True", "Ready"), ready("False", "CrashLoopBackOff", "why"), "CrashLoopBackOff", True),
        (ready("True", "Ready"), ready("False", "ReplicasNotReady", "why"), "ReplicasNotReady", False),
        (ready("False", "Probing"), ready("False", "ProbeFailed", "503"), "ProbeFailed", True),
    ],
)
def test_a_transition_is_announced_and_as_a_warning_if_it_will_not_pass_by_itself(
    before: Object, after: Object, reason: str, *, warning: bool
) -> None:
    (announced,) = statuses.events(before, after)
    assert (announced.reason, announced.type == "Warning") == (reason, warning)
    assert announced.message


def test_the_same_reason_again_is_not_announced_and_a_proven_revision_is() -> None:
    old = ready("False", "ReplicasNotReady", "0 of 2") | {"predictors": [{"name": "a", "revision": "r1"}]}
    new = ready("False", "ReplicasNotReady", "1 of 2") | {"predictors": [{"name": "a", "revision": "r1"}]}
    assert statuses.events(old, new) == ()
    proven = {**new, "predictors": [{"name": "a", "revision": "r2"}]}
    assert [a.reason for a in statuses.events(old, proven)] == ["RevisionProven"]
    assert statuses.events(old, {**new, "predictors": [{"name": "a", "revision": ""}]}) == ()


@pytest.mark.parametrize("before", [{}, ready("False", "ReplicasNotReady")])
def test_what_is_on_its_way_from_the_beginning_is_not_announced(before: Object) -> None:
    assert statuses.events(before, ready("False", "RouteNotAccepted")) == ()
    assert [a.reason for a in statuses.events(before, ready("False", "NoGateway"))] == ["NoGateway"]
    assert [a.reason for a in statuses.events(ready("False", "NoGateway"), ready("False", "Probing"))] == [
        "Probing"
    ]


def test_revisions_that_are_proven_as_all_gets_ready_are_named_there_and_not_announced_apart() -> None:
    new = ready("True", "Ready") | {"predictors": [{"name": "a", "revision": "r1"}]}
    (announced,) = statuses.events({}, new)
    assert (announced.reason, announced.type == "Warning") == ("Ready", False)
    assert announced.message == "all predictors are proven and routed; a: revision r1"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=6).filter(any))
def test_the_shares_of_the_arms_sum_to_a_hundred(weights: list[int]) -> None:
    world = settled(*(predictor(f"a{i}", "v1", weight) for i, weight in enumerate(weights)))
    shares = [p["trafficPercent"] for p in world.inference["status"]["predictors"]]
    assert sum(shares) == pytest.approx(100.0)
    assert [share > 0 for share in shares] == [weight > 0 for weight in weights]
