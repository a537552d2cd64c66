"""The state of a trial's replica from its Deployment and Pods."""

from typing import Any

import pytest

from serving.objects import Object
from tuner.trials import replica_state


def pod(container: Object | None = None, *, uid: str = "u1", ready: bool = False, **meta: Any) -> Object:
    statuses = [{"name": "predictor", "restartCount": 0, **container}] if container is not None else []
    return {
        "metadata": {"name": "t-1-x", "uid": uid, **meta},
        "status": {
            "podIP": "127.77.0.2",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": statuses,
        },
    }


RUNS: Object = {"state": {"running": {}}}


def ended(reason: str, **more: Any) -> Object:
    return {"state": {"terminated": {"reason": reason, "exitCode": 137, **more}}}


def test_ready_pod_has_an_address() -> None:
    replica = replica_state.state_of(None, [pod(RUNS, ready=True)])
    assert (replica.state, replica.address, replica.pod_uid) == ("ready", "127.77.0.2", "u1")


def test_replica_starts_when_an_init_container_has_ended_well() -> None:
    copied = {
        "name": "copy-model",
        "restartCount": 0,
        "state": {"terminated": {"reason": "Completed", "exitCode": 0}},
    }
    starting, ready = pod({"state": {"waiting": {}}}), pod(RUNS, ready=True)
    for each in (starting, ready):
        each["status"]["initContainerStatuses"] = [copied]
    assert replica_state.state_of(None, [starting]).state == "starting"
    assert replica_state.state_of(None, [ready]).state == "ready"


def test_replica_has_ended_when_an_init_container_failed() -> None:
    failed = {"name": "copy-model", "restartCount": 0, **ended("Error", message="DiskFull: x")}
    each = pod({"state": {"waiting": {"reason": "PodInitializing"}}})
    each["status"]["initContainerStatuses"] = [failed]
    replica = replica_state.state_of(None, [each])
    assert (replica.state, replica.reason) == ("ended", "Crashed")
    assert replica.message == "container copy-model ended with exit code 137: DiskFull: x"


@pytest.mark.parametrize(
    ("container", "reason"),
    [
        (ended("OOMKilled"), "OutOfMemory"),
        (ended("Error", signal=9), "Crashed"),
        (ended("Completed"), "Crashed"),
        ({**RUNS, "restartCount": 1, "lastState": ended("OOMKilled")["state"]}, "OutOfMemory"),
        ({**RUNS, "restartCount": 1}, "Crashed"),
        (
            {
                "restartCount": 2,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": ended("Error")["state"],
            },
            "Crashed",
        ),
        (ended("ContainerStatusUnknown"), "Interrupted"),
        (ended("NodeShutdown"), "Interrupted"),
    ],
)
def test_replica_has_ended_when_its_container_ended_or_restarted(container: Object, reason: str) -> None:
    replica = replica_state.state_of(None, [pod(container, ready=True)], "u1")
    assert (replica.state, replica.reason) == ("ended", reason)
    assert replica.message


@pytest.mark.parametrize(
    ("container", "condition", "qos_class", "reason"),
    [
        (ended("Error"), {"reason": "TerminationByKubelet"}, "Guaranteed", "Interrupted"),
        (ended("Error"), {"reason": "TerminationByKubelet"}, "Burstable", "Crashed"),
        (ended("Error"), {"reason": "PreemptionByScheduler"}, "Burstable", "Interrupted"),
        (ended("Error"), {"reason": "PreemptionByScheduler", "status": "False"}, "Guaranteed", "Crashed"),
        (ended("OOMKilled"), {"reason": "TerminationByKubelet"}, "Guaranteed", "OutOfMemory"),
        (RUNS, {"reason": "TerminationByKubelet"}, "Guaranteed", ""),
    ],
)
def test_replica_is_interrupted_when_it_was_ended_for_a_cause_outside_of_it(
    container: Object, condition: Object, qos_class: str, reason: str
) -> None:
    evicted = pod(container, ready=True)
    disruption = {"type": "DisruptionTarget", "status": "True", "message": "low on memory", **condition}
    evicted["status"]["conditions"].append(disruption)
    evicted["status"]["qosClass"] = qos_class
    replica = replica_state.state_of(None, [evicted], "u1")
    assert replica.reason == reason
    if reason == "Interrupted":
        assert replica.message == f"{condition['reason']}: low on memory"


@pytest.mark.parametrize(
    "others", [[], [pod(RUNS, uid="u2", ready=True)], [pod(RUNS, ready=True, deletionTimestamp="now")]]
)
def test_replica_is_interrupted_when_its_pod_is_gone(others: list[Object]) -> None:
    replica = replica_state.state_of(None, others, "u1")
    assert (replica.state, replica.reason) == ("ended", "Interrupted")


def rejected(**status: Any) -> Object:
    """Return a Pod that its node's kubelet did not admit."""
    reason, message = "OutOfcpu", "Node didn't have enough resource: cpu"
    body = {"phase": "Failed", "reason": reason, "message": message, **status}
    return {"metadata": {"name": "t-1-r", "uid": "u0"}, "status": body}


@pytest.mark.parametrize(
    "first", [rejected(), rejected(containerStatuses=[{"name": "predictor", "state": {"waiting": {}}}])]
)
def test_next_pod_counts_when_the_node_rejected_the_first(first: Object) -> None:
    ready = pod(RUNS, ready=True)
    for pods in ([first, ready], [ready, first]):
        replica = replica_state.state_of(None, pods)
        assert (replica.state, replica.pod_uid) == ("ready", "u1")
    assert replica_state.state_of(None, [first, pod(ended("OOMKilled"))]).reason == "OutOfMemory"


def test_replica_starts_when_the_node_rejected_its_only_pod() -> None:
    replica = replica_state.state_of(None, [rejected()])
    assert (replica.state, replica.pod_uid) == ("starting", "")
    assert replica.message == "OutOfcpu: Node didn't have enough resource: cpu"
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    refused = replica_state.state_of({"status": {"conditions": [failure]}}, [rejected()])
    assert (refused.reason, refused.message) == ("Refused", "exceeded quota")


def test_replica_is_interrupted_when_the_restarted_node_rejects_its_pod() -> None:
    replica = replica_state.state_of(None, [rejected(), pod(RUNS, ready=True)], "u0")
    assert (replica.state, replica.reason) == ("ended", "Interrupted")
    assert replica.message.startswith("OutOfcpu")


def test_replica_has_crashed_when_its_failed_pod_has_an_ended_container() -> None:
    crashed = pod(ended("Error"))
    crashed["status"]["phase"] = "Failed"
    assert replica_state.state_of(None, [crashed]).reason == "Crashed"


def test_replica_is_refused_when_the_api_refuses_its_pod() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "Pod is invalid: spec.containers[0]"}
    replica = replica_state.state_of({"status": {"conditions": [failure]}}, [])
    assert (replica.state, replica.reason) == ("ended", "Refused")
    assert "spec.containers[0]" in replica.message


@pytest.mark.parametrize("uid", ["", "u1"])
def test_refusal_of_an_earlier_attempt_is_ignored_when_there_is_a_pod(uid: str) -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    refused = {"status": {"conditions": [failure]}}
    assert replica_state.state_of(refused, [pod(RUNS, ready=True)], uid).state == "ready"
    assert replica_state.state_of(refused, [], "u1").reason == "Interrupted"


def test_starting_replica_has_the_cause_of_the_delay() -> None:
    assert replica_state.state_of(None, []).message == "there is no Pod yet"
    waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    assert replica_state.state_of(None, [pod(waiting)]).message == "ErrImagePull no such image"
    assert "readiness" in replica_state.state_of(None, [pod(RUNS)]).message
    full = pod()
    full["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]
    assert replica_state.state_of(None, [full]).message == "0/3 nodes"
    assert replica_state.state_of(None, [full]).state == "starting"


def test_message_of_limits_that_the_node_cannot_enforce() -> None:
    limited = pod(RUNS)
    limited["status"]["conditions"] += [
        {
            "type": "slipway.dev/LimitsEnforced",
            "status": "False",
            "reason": "NotEnforced",
            "message": "memory",
        }
    ]
    assert replica_state.not_enforced(limited) == "memory"
    assert replica_state.not_enforced(pod(RUNS)) == ""
