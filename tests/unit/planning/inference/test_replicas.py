import pytest

from serving.objects import Object
from serving.planning.inference import replicas
from serving.planning.inference.observed import Problem, World


def pod(name: str = "p", *, ready: bool = False, last: Object | None = None, **state: Object) -> Object:
    container = {"name": "predictor", "ready": ready, "state": state, "lastState": last or {}}
    return {"metadata": {"name": name}, "status": {"containerStatuses": [container]}}


def ended(code: int = 3, reason: str = "Error", **more: str) -> Object:
    return {"terminated": {"exitCode": code, "reason": reason, **more}}


def deployment(wanted: int, ready: int, **conditions: tuple[str, str]) -> Object:
    said = [{"type": t, "status": status, "message": text} for t, (status, text) in conditions.items()]
    return {"spec": {"replicas": wanted}, "status": {"readyReplicas": ready, "conditions": said}}


def world(found: Object | None, *pods: Object) -> World:
    table = {} if found is None else {"r": found}
    return World({}, {}, table, {}, {}, None, frozenset(), pods={"r": pods})


BACK_OFF = {"reason": "CrashLoopBackOff", "message": "back-off"}


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        (
            pod(waiting=BACK_OFF, last=ended()),
            "CrashLoopBackOff",
            "container predictor ended with exit code 3",
        ),
        (pod(running={}, last=ended()), "CrashLoopBackOff", "container predictor ended with exit code 3"),
        (pod(**ended()), "CrashLoopBackOff", "container predictor ended with exit code 3"),
        (pod(**ended(0, "Completed")), "CrashLoopBackOff", "container predictor ended with exit code 0"),
        (
            pod(waiting=BACK_OFF, last=ended(137, "OOMKilled", message="over its limit")),
            "OOMKilled",
            "container predictor ended with exit code 137: over its limit",
        ),
        (
            pod(waiting={"reason": "ErrImagePull", "message": "not in the store"}),
            "ErrImagePull",
            "container predictor: not in the store",
        ),
    ],
)
def test_a_container_in_trouble_is_named_with_the_reason(found: Object, reason: str, message: str) -> None:
    assert replicas.trouble(found) == Problem(reason, message)


@pytest.mark.parametrize(
    "found",
    [
        pod(running={}),
        pod(waiting={"reason": "ContainerCreating"}),
        pod(running={}, last=ended(), ready=True),
        pod(running={}, last=ended(137, "ContainerStatusUnknown")),
        {"metadata": {"name": "new"}},
        pod(**ended()) | {"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
)
def test_a_container_that_starts_serves_or_is_being_stopped_is_in_no_trouble(found: Object) -> None:
    assert replicas.trouble(found) is None


def test_a_pod_that_finds_no_node_says_so() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    found = {"metadata": {"name": "p"}, "status": {"conditions": [condition]}}
    assert replicas.trouble(found) == Problem("Unschedulable", "no room")


@pytest.mark.parametrize(
    ("wanted", "ready", "everything", "fine"),
    [(3, 1, False, True), (3, 1, True, False), (3, 3, True, True), (0, 0, True, False), (0, 1, True, True)],
)
def test_one_ready_replica_is_enough_but_for_what_takes_over_a_whole_load(
    wanted: int, ready: int, *, everything: bool, fine: bool
) -> None:
    found = replicas.problem(world(deployment(wanted, ready)), "r", everything=everything)
    assert (found is None) == fine


def test_the_reason_is_a_pods_then_the_deployments_own() -> None:
    slow = deployment(2, 0)
    assert replicas.problem(world(slow, pod("a", running={})), "r", everything=False) == Problem(
        "ReplicasNotReady", "revision r: 0 of 2 replicas ready"
    )
    found = replicas.problem(world(slow, pod("a", running={}), pod("b", **ended())), "r", everything=False)
    assert found == Problem(
        "CrashLoopBackOff",
        "revision r: 0 of 2 replicas ready (container predictor ended with exit code 3)",
    )
    refused = deployment(2, 0, ReplicaFailure=("True", "no Pod may be made"), Progressing=("True", ""))
    assert replicas.problem(world(refused), "r", everything=False) == Problem(
        "ReplicaFailure", "revision r: 0 of 2 replicas ready (no Pod may be made)"
    )
    assert replicas.problem(world(None), "r", everything=False) == Problem(
        "ReplicasNotReady", "revision r: 0 of 0 replicas ready"
    )


def test_a_revision_that_ran_out_of_time_has_failed_and_still_says_why() -> None:
    late = deployment(1, 0, Progressing=("False", "timed out"))
    assert replicas.problem(world(late), "r", everything=False) == Problem(
        "RevisionFailed", "revision r: 0 of 1 replicas ready (timed out)"
    )
    found = replicas.problem(world(late, pod(**ended())), "r", everything=False)
    assert found is not None
    assert (found.reason, "exit code 3" in found.message) == ("RevisionFailed", True)
