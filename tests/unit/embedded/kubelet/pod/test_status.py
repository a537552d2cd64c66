from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from serving.embedded.kubelet.pod import status as pod_status
from serving.embedded.kubelet.pod.lifecycle import Blocked, Container, ContainerExit, ContainerRun
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.resources import names

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=60)
UP = Container("main", "image", ContainerRun(0, 0, NOW), started=True, ready=True)


def status(*mains: Container, now: datetime = NOW, **more: Any) -> dict[str, Any]:
    arguments = {
        "identity": PodIdentity("127.77.0.1", 1_900_000_000),
        "qos_class": "BestEffort",
        "now": now,
        "old": {},
        "terminating": False,
        "backing_off": (),
        "not_enforced": "",
        "limited": False,
        **more,
    }
    return pod_status.status("uid", more.pop("policy", "Always"), [], mains, **arguments)


def condition(result: dict[str, Any], type_: str) -> dict[str, Any]:
    return next(c for c in result["conditions"] if c["type"] == type_)


def test_pod_is_ready_when_all_its_containers_are():
    assert condition(status(UP), "Ready")["status"] == "True"
    unready = condition(status(UP, replace(UP, name="slow", ready=False)), "Ready")
    assert (unready["status"], unready["reason"], unready["message"]) == (
        "False",
        "ContainersNotReady",
        "not ready: slow",
    )


def test_pod_that_is_being_deleted_is_not_ready_at_once():
    result = status(UP, terminating=True)
    assert condition(result, "Ready")["status"] == "False"
    assert result["containerStatuses"][0]["ready"] is False
    assert "running" in result["containerStatuses"][0]["state"]


def test_transition_times_change_only_with_the_status():
    first = status(UP)
    assert status(UP, now=LATER, old=first)["conditions"] == first["conditions"]
    assert status(UP, now=LATER, old=first)["startTime"] == first["startTime"]
    fallen = status(replace(UP, ready=False), now=LATER, old=first)
    assert condition(fallen, "Ready")["lastTransitionTime"] == "2026-01-01T00:01:00Z"
    assert condition(fallen, "Initialized")["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_last_exit_is_shown_while_a_container_waits_for_its_restart():
    exit_ = ContainerExit(7, "Error", finished_at=LATER)
    crashed = Container("main", "image", ContainerRun(4, 3, NOW, exit_, restart_count=3))
    container = status(crashed, backing_off=("main",))["containerStatuses"][0]
    assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert container["lastState"]["terminated"]["exitCode"] == 7
    assert container["restartCount"] == 3


def test_waiting_state_has_the_reason_when_a_container_cannot_start():
    blocked = Container("main", "image", blocked=Blocked("ErrImagePull", "not there", NOW))
    waiting = status(blocked)["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "ErrImagePull", "message": "not there"}


def test_limits_that_are_not_enforced_are_a_condition():
    result = condition(
        status(UP, limited=True, not_enforced="memory: needs root"), names.LIMITS_ENFORCED_CONDITION
    )
    assert (result["status"], result["message"]) == ("False", "memory: needs root")
    assert condition(status(UP, limited=True), names.LIMITS_ENFORCED_CONDITION)["status"] == "True"
    unlimited = status(UP, limited=False, not_enforced="pids: no cgroup")
    unasked = condition(unlimited, names.LIMITS_ENFORCED_CONDITION)
    assert unasked["status"] == "False"


def test_finished_pod_is_completed():
    done = Container(
        "main", "image", ContainerRun(0, 0, NOW, ContainerExit(0, "Completed", finished_at=LATER))
    )
    result = pod_status.status(
        "uid",
        "Never",
        [],
        [done],
        identity=PodIdentity("", None),
        qos_class="BestEffort",
        now=NOW,
        old={},
        terminating=False,
        backing_off=(),
        not_enforced="",
        limited=False,
    )
    assert result["phase"] == "Succeeded"
    assert condition(result, "Ready")["reason"] == "PodCompleted"


def test_only_a_first_start_under_way_is_not_urgent():
    creating = status(Container("main", "image"))
    up = status(replace(UP, ready=False))
    assert pod_status.is_starting({}, creating)
    assert pod_status.is_starting(creating, up)
    assert not pod_status.is_starting(up, status(UP))
    assert not pod_status.is_starting(status(UP), up)
    assert not pod_status.is_starting(up, status(replace(UP, ready=False), terminating=True))
    blocked = Container("main", "image", blocked=Blocked("ErrImagePull", "not there", NOW))
    assert not pod_status.is_starting(creating, status(blocked))
    ended = Container("main", "image", ContainerRun(0, 0, NOW, ContainerExit(1, "Error", finished_at=LATER)))
    assert not pod_status.is_starting(up, status(ended))
    again = replace(UP, ready=False, run=ContainerRun(1, 1, NOW, restart_count=1))
    assert not pod_status.is_starting(up, status(again))


def test_status_of_an_ordinary_users_pod_reports_no_isolation() -> None:
    isolated = status(UP)
    assert "slipway.dev/Isolated" not in {c["type"] for c in isolated["conditions"]}
    exposed = status(UP, identity=PodIdentity("127.77.0.1", None))
    assert condition(exposed, "slipway.dev/Isolated")["status"] == "False"
    assert "not kept apart" in condition(exposed, "slipway.dev/Isolated")["message"]


def test_missing_filter_of_system_calls_is_a_condition() -> None:
    unfiltered = condition(status(UP, not_filtered="no library"), "slipway.dev/Isolated")
    assert (unfiltered["status"], unfiltered["message"]) == ("False", "no library")
    exposed = status(UP, not_filtered="no library", identity=PodIdentity("127.77.0.1", None))
    assert condition(exposed, "slipway.dev/Isolated")["message"].endswith("; no library")


def test_message_of_an_exit_has_the_nodes_line_first_and_then_the_programs():
    exit_ = ContainerExit(137, "OOMKilled", "over its limit", termination_message="LoadFailed: no\n")
    ended = replace(UP, run=ContainerRun(0, 0, NOW, exit_))
    state = status(ended)["containerStatuses"][0]["state"]
    assert state["terminated"]["message"] == "over its limit\nLoadFailed: no\n"


def test_messages_of_a_pod_are_at_most_12_kib_when_it_has_many_containers():
    exit_ = ContainerExit(1, "Error", termination_message="€" * 1365 + "z")
    ended = replace(UP, run=ContainerRun(1, 0, NOW, exit_), previous_run=ContainerRun(0, 0, NOW, exit_))
    few = status(*[replace(ended, name=f"c{n}") for n in range(3)])["containerStatuses"]
    assert {c["state"]["terminated"]["message"] for c in few} == {"€" * 1365 + "z"}
    many = status(*[replace(ended, name=f"c{n}") for n in range(30)])["containerStatuses"]
    messages = [c["state"]["terminated"]["message"] for c in many]
    assert sum(len(message.encode()) for message in messages) <= 12 * 1024
    assert {message[-2:] for message in messages} == {"€z"}


def test_message_of_the_last_state_is_bounded_too_when_the_container_runs_again():
    exit_ = ContainerExit(1, "Error", termination_message="z" * 4096)
    again = replace(UP, previous_run=ContainerRun(0, 0, NOW, exit_))
    result = status(*[replace(again, name=f"c{n}") for n in range(6)])
    assert len(result["containerStatuses"][0]["lastState"]["terminated"]["message"]) == 2048
