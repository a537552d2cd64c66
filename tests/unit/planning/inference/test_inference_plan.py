"""The Inference planner, tested by the effect of its plans with arbitrary changes in between."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.objects import Object
from serving.planning.inference import planner
from serving.planning.inference.plan import Ensure, RemoveChild, SetFinalizers
from serving.resources import names
from serving.resources.kubernetes import conditions
from tests.fakes.inference_world import NOW, InferenceWorld
from tests.fakes.surroundings import predictor

ARMS = ("a", "b", "c")
VERSIONS = ("v1", "v2", "v3")

predictors = st.lists(
    st.builds(
        predictor,
        st.sampled_from(ARMS),
        st.sampled_from(VERSIONS),
        st.integers(0, 3),
        autoScale=st.integers(0, 1).map(lambda least: {"minReplicas": least}),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda p: p["name"],
).filter(lambda arms: any(p["trafficWeight"] for p in arms))


def _set(name: str) -> st.SearchStrategy[Callable[[InferenceWorld], None]]:
    return st.sets(st.sampled_from(VERSIONS), max_size=2).map(
        lambda versions: lambda world: setattr(world, name, versions)
    )


steps = st.one_of(
    st.just(InferenceWorld.go_on),
    st.just(InferenceWorld.go_on),
    st.sampled_from([InferenceWorld.plan, InferenceWorld.ready, InferenceWorld.accept, InferenceWorld.size]),
    st.integers(0, 6).map(lambda count: lambda world: world.plan(actions=count)),
    predictors.map(lambda arms: lambda world: world.edit(*arms)),
    st.booleans().map(lambda alive: lambda world: setattr(world, "alive", alive)),
    st.booleans().map(lambda patient: lambda world: setattr(world, "is_patient", patient)),
    _set("unready"),
    _set("blocked"),
    _set("broken"),
    _set("sick"),
)


def segments(world: InferenceWorld) -> dict[str, int]:
    """Return the ring units of each arm."""
    assert world.route is not None
    arm_of = {b["name"]: b["arm"] for b in world.route["spec"]["backends"]}
    units: dict[str, int] = {}
    for segment in world.route["spec"]["segments"]:
        arm = arm_of[segment["backend"]]
        units[arm] = units.get(arm, 0) + segment["size"]
    return units


def ready(world: InferenceWorld) -> Object:
    return dict(conditions.find(world.inference["status"]["conditions"], "Ready") or {})


@settings(max_examples=100)
@given(predictors, st.lists(steps, max_size=30))
def test_any_sequence_of_changes_keeps_traffic_served_and_reaches_the_spec(
    initial: list[Object], changes: list[Callable[[InferenceWorld], object]]
) -> None:
    world = InferenceWorld(*initial)
    for change in changes:
        change(world)
    world.alive = True
    world.unready, world.blocked, world.broken, world.sick = set(), set(), set(), set()
    world.settle()
    arms = {p["name"] for p in world.inference["spec"]["predictors"]}
    assert ready(world)["status"] == "True"
    assert set(segments(world)) == {
        p["name"] for p in world.inference["spec"]["predictors"] if p["trafficWeight"]
    }
    assert (
        len(world.deployments)
        == len(world.children["Service"])
        == len(world.children["Autoscaler"])
        == len(arms)
    )
    serving = {p["revision"] for p in world.inference["status"]["predictors"]}
    assert serving == set(world.deployments)
    assert {a["spec"]["scaleTargetRef"]["name"] for a in world.children["Autoscaler"].values()} == serving
    assert world.now().route["spec"] == world.served


@settings(max_examples=30)
@given(predictors)
def test_plan_of_a_settled_inference_is_empty(initial: list[Object]) -> None:
    world = InferenceWorld(*initial)
    world.settle()
    plan = planner.plan(world.now(), "2030-01-01T00:00:00Z")
    assert (plan.actions, plan.status, plan.events) == ((), None, ())


@settings(max_examples=50)
@given(predictors, st.lists(steps, max_size=15), st.sets(st.sampled_from(VERSIONS), min_size=1))
def test_a_blocked_version_ends_without_replicas_and_without_traffic(
    initial: list[Object], changes: list[Callable[[InferenceWorld], object]], blocked: set[str]
) -> None:
    world = InferenceWorld(*initial)
    for change in changes:
        change(world)
    world.alive = True
    world.unready, world.broken, world.sick, world.blocked = set(), set(), set(), blocked
    world.settle()
    annotations = [d["spec"]["template"]["metadata"]["annotations"] for d in world.deployments.values()]
    assert blocked.isdisjoint(a[names.MODEL_VERSION_ANNOTATION] for a in annotations)
    assert {segment["backend"] for segment in world.served["segments"]} <= set(world.deployments)
    targets = {a["spec"]["scaleTargetRef"]["name"] for a in world.children["Autoscaler"].values()}
    assert targets == set(world.deployments)
    allowed = [p for p in world.inference["spec"]["predictors"] if p["modelVersion"] not in blocked]
    if any(p["trafficWeight"] for p in allowed):
        assert sum(segments(world).values()) == 10_000


def test_an_inference_that_names_a_blocked_version_starts_nothing_and_reports_the_reason() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.blocked = {"v1"}
    world.settle()
    assert (world.deployments, world.children["Autoscaler"]) == ({}, {})
    assert ready(world)["reason"] == "ModelVersionBlocked"
    assert "ModelVersion v1 is blocked: model.pkl (Pickle) contains code" in ready(world)["message"]


def test_a_policy_that_is_not_valid_starts_nothing_and_stops_nothing() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.settle()
    world.blocked, world.blocked_by = {"v1"}, "PolicyInvalid"
    world.settle()
    assert (segments(world), len(world.deployments)) == ({"a": 10_000}, 1)
    world.edit(predictor("a", "v1"), predictor("b", "v1"))
    world.settle()
    assert (segments(world), len(world.deployments)) == ({"a": 10_000}, 1)


def test_an_arm_serves_on_when_its_weight_moves_to_a_new_arm_in_one_edit() -> None:
    world = InferenceWorld(predictor("stable", "v1", 100))
    world.settle()
    world.broken = {"v2"}
    world.edit(predictor("stable", "v1", 0), predictor("v2", "v2", 100))
    world.settle()
    assert segments(world) == {"stable": 10_000}
    world.broken = set()
    world.settle()
    assert segments(world) == {"v2": 10_000}


def test_an_arm_keeps_the_share_of_a_new_arm_when_its_own_weight_becomes_zero() -> None:
    world = InferenceWorld(predictor("stable", "v1", 90), predictor("canary", "v2", 10))
    world.settle()
    world.broken = {"v3"}
    world.edit(predictor("stable", "v1", 0), predictor("canary", "v2", 10), predictor("v3", "v3", 90))
    world.settle()
    assert segments(world) == {"stable": 9_000, "canary": 1_000}
    world.broken = set()
    world.settle()
    assert segments(world) == {"canary": 1_000, "v3": 9_000}


def test_weight_of_zero_takes_effect_at_once_when_all_weighted_arms_are_proven() -> None:
    world = InferenceWorld(predictor("a", "v1", 50), predictor("b", "v2", 50), predictor("c", "v3", 0))
    world.settle()
    world.broken = {"v1"}
    world.ready()
    world.edit(predictor("a", "v1", 0), predictor("b", "v2", 50), predictor("c", "v3", 50))
    world.plan()
    assert segments(world) == {"b": 5_000, "c": 5_000}


def test_the_share_of_a_blocked_version_falls_to_the_other_arms_and_comes_back() -> None:
    world = InferenceWorld(predictor("a", "v1", 30), predictor("b", "v2", 70))
    world.settle()
    world.blocked = {"v2"}
    world.settle()
    assert (segments(world), len(world.deployments)) == ({"a": 10_000}, 1)
    world.blocked = set()
    world.settle()
    assert segments(world) == {"a": 3_000, "b": 7_000}


def test_an_arm_that_was_renamed_gets_no_traffic_by_its_old_name_when_its_version_is_blocked() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.settle()
    world.blocked = {"v1"}
    world.edit(predictor("b", "v1"))
    world.settle()
    assert (segments(world), world.deployments) == ({}, {})


def test_a_blocked_replacement_leaves_the_serving_revision_of_another_version() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.settle()
    serving = set(world.deployments)
    world.blocked = {"v2"}
    world.edit(predictor("a", "v2"))
    world.settle()
    assert set(world.deployments) == serving
    assert (ready(world)["reason"], segments(world)) == ("ModelVersionBlocked", {"a": 10_000})
    predictors_ready = conditions.find(world.inference["status"]["conditions"], "PredictorsReady")
    assert predictors_ready is not None
    for condition in (ready(world), predictors_ready):
        assert condition["message"].endswith(f"; revision {next(iter(serving))} serves")
    world.blocked = {"v1", "v2"}
    world.settle()
    assert " serves" not in ready(world)["message"]
    assert world.deployments == {}


@pytest.mark.parametrize("size", [3_000, 7_000, 1])
def test_ring_is_rebuilt_when_somebody_has_edited_its_sum(size: int) -> None:
    world = InferenceWorld(predictor("a", "v1", 30), predictor("b", "v2", 70))
    world.settle()
    assert world.route is not None
    spec = world.route["spec"]
    world.route["spec"] = {**spec, "segments": [{**segment, "size": size} for segment in spec["segments"]]}
    world.plan()
    assert segments(world) == {"a": 3_000, "b": 7_000}


def test_broken_revision_gets_no_traffic_and_the_old_one_keeps_serving() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.settle()
    old_revision = set(world.deployments)
    world.broken = {"v2"}
    world.edit(predictor("a", "v2"))
    for _ in range(5):
        world.go_on()
    assert old_revision < set(world.deployments)
    assert {s["backend"] for s in world.served["segments"]} == old_revision
    assert ready(world)["reason"] == "ReplicasNotReady"
    assert f"revision {next(iter(old_revision))} serves" in ready(world)["message"]
    world.edit(predictor("a", "v3"))
    world.settle()
    assert len(world.deployments) == 1
    assert not old_revision & set(world.deployments)


def test_revision_whose_probe_fails_gets_no_traffic_and_is_probed_on() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.sick = {"v1"}
    for _ in range(5):
        world.go_on()
    assert world.served["segments"] == []
    assert ready(world)["reason"] == "ProbeFailed"
    assert ", on port 8080: " in ready(world)["message"], "a custom container may listen elsewhere"
    assert [backend["probe"] for backend in world.served["backends"]] == [
        ["/v2/health/ready", "/v2/models/digits/ready"]
    ]
    world.sick = set()
    world.settle()
    assert ready(world)["reason"] == "Ready"
    assert not any("probe" in backend for backend in world.served["backends"])


def test_failed_probe_of_a_candidate_is_not_that_of_the_next() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.sick = {"v1"}
    for _ in range(3):
        world.go_on()
    assert planner.plan(world.now(), NOW).status is None
    world.edit(predictor("a", "v2"))
    world.go_on()
    assert ready(world)["reason"] != "ProbeFailed", "the failure belongs to another candidate"


def test_status_that_only_reports_progress_may_wait() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    statuses = []
    while not statuses or statuses[-1][0] != "Ready":
        for plan in (planner.plan(world.now(), NOW), world.go_on()):
            if plan.status is not None:
                condition = conditions.find(plan.status["conditions"], "Ready") or {}
                statuses.append((condition["reason"], plan.status_may_wait))
    assert set(statuses) == {
        ("ReplicasNotReady", True),
        ("RouteNotAccepted", True),
        ("Ready", False),
    }


def test_status_describes_the_state_after_the_writes_of_its_plan() -> None:
    world = InferenceWorld(predictor("a", "v1", autoScale={"minReplicas": 3, "maxReplicas": 3}))
    plan = planner.plan(world.now(), NOW)
    assert plan.status is not None
    (arm_status,) = plan.status["predictors"]
    assert "0 of 3 replicas ready" in arm_status["message"]
    routes = conditions.find(plan.status["conditions"], "RoutesReady") or {}
    assert (routes["reason"], routes["message"]) == ("RouteNotAccepted", "not accepted yet by gateway gw")
    world.settle()
    world.edit(predictor("a", "v1", 1), predictor("b", "v2", 0))
    plan = planner.plan(world.now(), NOW)
    assert [p["reason"] for p in (plan.status or {})["predictors"]] == ["Ready", "ReplicasNotReady"]


def test_status_with_the_proof_of_an_arm_without_weight_does_not_wait() -> None:
    """The Route names only arms with traffic, so this one's proof is in the status alone."""
    world = InferenceWorld(predictor("a", "v1", 1), predictor("b", "v2", 0))
    world.broken = {"v1"}
    world.is_patient = True
    for _ in range(4):
        world.go_on()
    assert world.route is not None
    assert world.route["spec"]["segments"] == []
    status = world.inference["status"]
    assert [bool(p["revision"]) for p in status["predictors"]] == [False, True]
    assert ready(world)["reason"] == "ReplicasNotReady"


@pytest.mark.parametrize(
    ("cause_problem", "may_wait"),
    [
        pytest.param(lambda world: setattr(world, "broken", {"v2"}), True, id="slow"),
        pytest.param(lambda world: setattr(world, "sick", {"v2"}), False, id="fails its probe"),
        pytest.param(lambda world: setattr(world, "unready", {"v2"}), False, id="has no model"),
        pytest.param(lambda world: setattr(world, "alive", False), False, id="no gateway"),
    ],
)
def test_status_with_a_problem_that_needs_action_does_not_wait(
    cause_problem: Callable[[InferenceWorld], object], *, may_wait: bool
) -> None:
    world = InferenceWorld(predictor("a", "v1"), predictor("b", "v1"))
    world.settle()
    cause_problem(world)
    world.edit(predictor("a", "v1"), predictor("b", "v2"))
    plans = [world.go_on() for _ in range(3)]
    assert [plan.status_may_wait for plan in plans if plan.status is not None][-1] is may_wait


def test_status_with_effective_weights_does_not_wait_for_a_slow_arm() -> None:
    world = InferenceWorld(predictor("a", "v1", 1), predictor("b", "v2", 1))
    world.settle()
    world.broken, world.is_patient = {"v3"}, True
    world.edit(predictor("a", "v1", 3), predictor("b", "v3", 1))
    plan = world.go_on()
    assert plan.status_may_wait
    world.go_on()
    routes = conditions.find(world.inference["status"]["conditions"], "RoutesReady") or {}
    assert (routes["status"], routes["observedGeneration"]) == ("True", 2)
    assert ready(world)["reason"] == "ReplicasNotReady"


def test_arm_whose_version_is_not_ready_blocks_no_other() -> None:
    world = InferenceWorld(predictor("a", "v1", 50), predictor("b", "v2", 50))
    world.unready = {"v2"}
    for _ in range(6):
        world.go_on()
    assert segments(world) == {"a": 10_000}
    assert (ready(world)["reason"], ready(world)["status"]) == ("ModelVersionNotFound", "False")
    world.unready = set()
    world.settle()
    assert segments(world) == {"a": 5_000, "b": 5_000}


def test_refused_revision_is_not_written_again_and_blocks_no_other() -> None:
    world = InferenceWorld(predictor("a", "v1"), predictor("b", "v2"))
    revisions = [
        a.object["metadata"]["name"] for a in planner.plan(world.now(), NOW).actions if isinstance(a, Ensure)
    ]
    refused_revision = next(name for name in revisions if name.startswith("digits-b-"))
    plan = planner.plan(world.now(refused={refused_revision: "spec.template: no"}), NOW)
    rewritten = [action.object["metadata"]["name"] for action in plan.actions if isinstance(action, Ensure)]
    assert refused_revision not in rewritten
    assert any(name.startswith("digits-a-") for name in rewritten)
    assert plan.status is not None
    reasons = {p["name"]: (p["reason"], p["message"]) for p in plan.status["predictors"]}
    assert reasons["b"] == ("RevisionRefused", f"revision {refused_revision} was refused: spec.template: no")
    assert reasons["a"][0] == "ReplicasNotReady"


def test_a_new_revision_starts_with_as_many_replicas_as_the_one_it_replaces() -> None:
    bounds = {"autoScale": {"minReplicas": 1, "maxReplicas": 5}}
    world = InferenceWorld(predictor("a", "v1", **bounds))
    world.settle()
    (old,) = world.deployments.values()
    old["spec"]["replicas"] = 4
    world.edit(predictor("a", "v2", **bounds))
    world.plan()
    assert sorted(d["spec"]["replicas"] for d in world.deployments.values()) == [4, 4]
    world.edit(predictor("a", "v3", autoScale={"minReplicas": 1, "maxReplicas": 2}))
    world.plan()
    assert sorted(d["spec"]["replicas"] for d in world.deployments.values()) == [2, 4, 4]


def test_deletion_removes_the_route_first_and_the_finalizer_last() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.settle()
    world.inference["metadata"]["deletionTimestamp"] = NOW
    (route_removal,) = planner.plan(world.now(), NOW).actions
    assert isinstance(route_removal, RemoveChild)
    assert route_removal.kind.kind == "Route"
    world.children["Route"].clear()
    *removals, final_action = planner.plan(world.now(), NOW).actions
    assert {action.kind.kind for action in removals if isinstance(action, RemoveChild)} == {
        "Autoscaler",
        "Deployment",
        "Service",
    }
    assert final_action == SetFinalizers(())


def test_deletion_in_the_foreground_waits_for_the_pods_of_its_deployments() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.settle()
    world.children["Route"].clear()
    finalizers = ["foregroundDeletion", planner.FINALIZER]
    world.inference["metadata"] |= {"deletionTimestamp": NOW, "finalizers": finalizers}
    actions = planner.plan(world.now(), NOW).actions
    assert [a.foreground for a in actions if isinstance(a, RemoveChild) and a.kind.kind == "Deployment"] == [
        True
    ]
    assert actions[-1] == SetFinalizers(("foregroundDeletion",))


def test_orphaning_leaves_all_children() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.settle()
    world.inference["metadata"] |= {"deletionTimestamp": NOW, "finalizers": ["orphan", planner.FINALIZER]}
    assert planner.plan(world.now(), NOW).actions == (SetFinalizers(("orphan",)),)


def test_other_finalizers_are_kept() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.inference["metadata"]["finalizers"] = ["somebody/else"]
    assert planner.plan(world.now(), NOW).actions[0] == SetFinalizers(("somebody/else", planner.FINALIZER))
    world.inference["metadata"] |= {"deletionTimestamp": NOW, "finalizers": ["somebody/else"]}
    assert planner.plan(world.now(), NOW).actions == ()


@pytest.mark.parametrize(
    ("name", "spec", "reason"),
    [
        ("a.b", {}, "InvalidName"),
        ("2fast", {}, "InvalidName"),
        ("x" * 64, {}, "InvalidName"),
        ("fine", {"framework": "unheard-of"}, "InvalidSpec"),
        ("fine", {"framework": "own-unheard-of"}, "UnknownFramework"),
    ],
)
def test_invalid_inference_gets_a_condition_and_no_action(name: str, spec: Object, reason: str) -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.inference["metadata"]["name"] = name
    world.inference["spec"] |= spec
    world.inference["status"] = {"url": "http://kept"}
    plan = planner.plan(world.now(), NOW)
    assert plan.actions == ()
    assert plan.status is not None
    assert plan.status["url"] == "http://kept"
    assert [c["reason"] for c in plan.status["conditions"]] == [reason]


def test_inference_that_becomes_invalid_keeps_its_other_conditions_and_emits_one_warning() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.settle()
    before = {c["type"]: c for c in world.inference["status"]["conditions"]}
    world.inference["spec"]["framework"] = "own-unheard-of"
    world.inference["metadata"]["generation"] += 1
    plan = planner.plan(world.now(), NOW)
    assert plan.status is not None
    after = {c["type"]: c for c in plan.status["conditions"]}
    assert {**after, "Ready": None} == {**before, "Ready": None}
    assert after["Ready"]["observedGeneration"] == before["RoutesReady"]["observedGeneration"] + 1
    assert [(event.reason, event.type) for event in plan.events] == [("UnknownFramework", "Warning")]
    world.inference["status"] = plan.status
    later = planner.plan(world.now(), "2030-01-01T00:00:00Z")
    assert (later.actions, later.status, later.events) == ((), None, ())


def test_message_of_an_invalid_spec_starts_with_the_field_path() -> None:
    world = InferenceWorld(predictor("a", "v1"))
    world.inference["spec"]["predictors"][0]["trafficWeight"] = -1
    plan = planner.plan(world.now(), NOW)
    assert plan.status is not None
    assert plan.status["conditions"][0]["message"].startswith("spec.predictors[0].trafficWeight: ")


def test_standby_replicas_are_annotated_on_the_deployment_and_reset() -> None:
    def annotations() -> list[str | None]:
        deployments = world.deployments.values()
        return [(d["metadata"].get("annotations") or {}).get(names.STANDBY_ANNOTATION) for d in deployments]

    world = InferenceWorld(predictor("a", "v1"))
    world.settle()
    assert annotations() == [None]
    world.edit(predictor("a", "v1", autoScale={"standby": 2}))
    world.settle()
    assert annotations() == ["2"]
    world.edit(predictor("a", "v1"))
    world.settle()
    assert annotations() == ["0"]
