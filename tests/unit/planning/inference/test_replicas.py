import pytest

from serving.objects import Object
from serving.planning.inference import replicas
from serving.resources.conditions import StatusReason


def pod(name: str = "p", *, ready: bool = False, last: Object | None = None, **state: Object) -> Object:
    container = {"name": "predictor", "ready": ready, "state": state, "lastState": last or {}}
    return {"metadata": {"name": name}, "status": {"containerStatuses": [container]}}


def ended(code: int = 3, reason: str = "Error", **more: str) -> Object:
    return {"terminated": {"exitCode": code, "reason": reason, **more}}


def deployment(wanted: int, ready: int, **conditions: tuple[str, str]) -> Object:
    said = [{"type": t, "status": status, "message": text} for t, (status, text) in conditions.items()]
    return {"spec": {"replicas": wanted}, "status": {"readyReplicas": ready, "conditions": said}}


def problem(deployment: Object | None, *pods: Object, all_ready: bool = False) -> StatusReason | None:
    state = None if deployment is None else replicas.read(deployment, pods)
    return replicas.problem("r", state, all_ready=all_ready)


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
def test_the_problem_of_a_failed_container_names_it_and_its_reason(
    found: Object, reason: str, message: str
) -> None:
    assert replicas.pod_problem(found) == StatusReason(reason, message)


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
def test_a_container_that_starts_serves_or_is_being_stopped_has_no_problem(found: Object) -> None:
    assert replicas.pod_problem(found) is None


def test_a_pod_that_cannot_be_scheduled_has_the_schedulers_reason() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    found = {"metadata": {"name": "p"}, "status": {"conditions": [condition]}}
    assert replicas.pod_problem(found) == StatusReason("Unschedulable", "no room")


@pytest.mark.parametrize(
    ("wanted", "ready", "all_ready", "fine"),
    [(3, 1, False, True), (3, 1, True, False), (3, 3, True, True), (0, 0, True, False), (0, 1, True, True)],
)
def test_one_ready_replica_is_enough_unless_the_revision_takes_over_the_whole_load(
    wanted: int, ready: int, *, all_ready: bool, fine: bool
) -> None:
    found = problem(deployment(wanted, ready), all_ready=all_ready)
    assert (found is None) == fine


def test_the_reason_is_the_first_failed_pods_else_the_deployments() -> None:
    slow = deployment(2, 0)
    assert problem(slow, pod("a", running={})) == StatusReason(
        "ReplicasNotReady", "revision r: 0 of 2 replicas ready"
    )
    found = problem(slow, pod("a", running={}), pod("b", **ended()))
    assert found == StatusReason(
        "CrashLoopBackOff",
        "revision r: 0 of 2 replicas ready (container predictor ended with exit code 3)",
    )
    refused = deployment(2, 0, ReplicaFailure=("True", "no Pod may be made"), Progressing=("True", ""))
    assert problem(refused) == StatusReason(
        "ReplicaFailure", "revision r: 0 of 2 replicas ready (no Pod may be made)"
    )
    assert problem(None) == StatusReason("ReplicasNotReady", "revision r: 0 of 0 replicas ready")


def test_a_revision_past_its_deadline_has_failed_and_keeps_the_pods_message() -> None:
    late = deployment(1, 0, Progressing=("False", "timed out"))
    assert problem(late) == StatusReason("RevisionFailed", "revision r: 0 of 1 replicas ready (timed out)")
    found = problem(late, pod(**ended()))
    assert found is not None
    assert (found.reason, "exit code 3" in found.message) == ("RevisionFailed", True)
