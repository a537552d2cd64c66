import json
from datetime import UTC, datetime
from typing import Any

import pytest

from serving.cli.objects import sections
from serving.resources import kinds, names

NOW = datetime(2026, 1, 2, 10, 0, 0, tzinfo=UTC)


def event(reason: str, last: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "Normal",
        "reason": reason,
        "lastTimestamp": last,
        "message": "m",
        "source": {"component": "c"},
    } | fields


def pod(name: str, arm: str, **status: Any) -> dict[str, Any]:
    meta = {"name": name, "labels": {names.PREDICTOR_LABEL: arm}, "creationTimestamp": "2026-01-02T09:57:00Z"}
    return {"metadata": meta, "spec": {"containers": [{}]}, "status": status}


def test_times_in_the_header_are_absolute_and_relative() -> None:
    meta = {"name": "a", "creationTimestamp": "2026-01-02T09:00:00Z", "finalizers": ["x/y", "z/w"]}
    text = sections.head(kinds.MODEL, {"metadata": meta}, NOW)
    assert "CreationTimestamp: 2026-01-02T09:00:00Z (60m ago)" in text
    assert "Finalizers:        x/y, z/w" in text


def test_the_end_of_a_grace_period_is_in_the_future() -> None:
    meta = {
        "name": "a",
        "creationTimestamp": "2026-01-02T10:00:00.5Z",  # by a clock that is ahead
        "deletionTimestamp": "2026-01-02T10:00:29Z",
    }
    text = sections.head(kinds.POD, {"metadata": meta}, NOW)
    assert "DeletionTimestamp: 2026-01-02T10:00:29Z (in 29s)" in text
    assert "CreationTimestamp: 2026-01-02T10:00:00.5Z (0s ago)" in text


def test_events_have_the_columns_of_kubectl_oldest_first() -> None:
    later = event("Later", "2026-01-02T09:59:50Z")
    often = event("Often", "2026-01-02T09:55:00Z", count=3, firstTimestamp="2026-01-02T08:00:00Z")
    lines = sections.events([later, often], NOW).splitlines()
    assert lines[0].split() == ["TYPE", "REASON", "AGE", "FROM", "MESSAGE"]
    assert "5m (x3 over 120m)" in lines[1]
    assert lines[2].split() == ["Normal", "Later", "10s", "c", "m"]


def test_events_of_a_series_have_its_count_last_time_and_reporter() -> None:
    series = {"count": 4, "lastObservedTime": "2026-01-02T09:59:55.000000Z"}
    repeated = {
        "type": "Warning",
        "reason": "FailedScheduling",
        "eventTime": "2026-01-02T08:00:00.000000Z",
        "series": series,
        "reportingComponent": "default-scheduler",
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "message": "m",
    }
    lines = sections.events([repeated, event("Earlier", "2026-01-02T09:55:00Z")], NOW).splitlines()
    assert lines[1].split()[1] == "Earlier"
    assert lines[2].split() == [
        "Warning",
        "FailedScheduling",
        "5s",
        "(x4",
        "over",
        "120m)",
        "default-scheduler",
        "m",
    ]


def test_events_are_none_without_events() -> None:
    assert sections.events([], NOW) == "<none>"


def test_replicas_show_waiting_reason_restarts_and_termination() -> None:
    waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 4, "ready": False}
    ready = {"state": {"running": {}}, "restartCount": 0, "ready": True}
    terminating = pod("c", "b", phase="Running", containerStatuses=[ready])
    terminating["metadata"]["deletionTimestamp"] = "2026-01-02T10:00:00Z"
    pods = [terminating, pod("a", "b", phase="Running", podIP="127.77.0.2", containerStatuses=[waiting])]
    lines = [line.split() for line in sections.replicas(pods, NOW).splitlines()]
    assert lines[0] == ["NAME", "ARM", "STATUS", "READY", "RESTARTS", "AGE", "IP"]
    assert lines[1] == ["a", "b", "CrashLoopBackOff", "0/1", "4", "3m", "127.77.0.2"]
    assert lines[2] == ["c", "b", "Terminating", "1/1", "0", "3m", "N/A"]


def test_conditions_show_their_transition_time() -> None:
    conditions = [
        {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-02T09:59:00Z"}
    ]
    assert sections.conditions(conditions, NOW).splitlines()[1].split() == [
        "Ready",
        "True",
        "Ready",
        "60s",
        "N/A",
    ]


def test_a_start_from_zero_shows_the_duration_of_its_phases() -> None:
    phases = [{"name": "decide", "milliseconds": 21.4}, {"name": "load", "milliseconds": 80.1}]
    phases.append({"name": "other", "milliseconds": -0.2})  # clocks of two processes
    wake = {"pod": "p", "acceptedAt": "2026-01-02T09:59:30Z", "phases": phases, "total": 101.5}
    demand = [{"reporter": "gateway-local", "inFlight": 0}, {"reporter": "activator-local", "lastWake": wake}]
    scaler = {"metadata": {"labels": {names.PREDICTOR_LABEL: "a"}}, "status": {"demand": demand}}
    quiet = {"metadata": {"labels": {names.PREDICTOR_LABEL: "b"}}, "status": {"demand": demand[:1]}}
    lines = [line.split() for line in sections.wakes([scaler, quiet], NOW).splitlines()]
    assert lines == [["ARM", "AGE", "TOTAL", "DECIDE", "LOAD", "OTHER"], ["a", "30s", "102", "21", "80", "0"]]
    assert sections.wakes([quiet], NOW) == ""


def test_the_newest_of_the_starts_from_zero_is_shown_when_activators_report_several() -> None:
    def woken(reporter: str, accepted_at: str, total: float) -> dict[str, Any]:
        wake = {"pod": "p", "acceptedAt": accepted_at, "phases": [], "total": total}
        return {"reporter": reporter, "lastWake": wake}

    newer, older = woken("a", "2026-01-02T09:59:58Z", 95), woken("b", "2025-12-31T10:00:00Z", 5000)
    for demand in ([newer, older], [older, newer]):
        scaler = {"metadata": {"labels": {names.PREDICTOR_LABEL: "arm"}}, "status": {"demand": demand}}
        assert sections.wakes([scaler], NOW).splitlines()[1].split() == ["arm", "2s", "95"]


def test_the_start_of_a_pod_is_a_table_of_phases() -> None:
    durations = {"fetch": 0, "verify": 2.5, "spawn": 20, "import": 0, "load": 7.5, "warmup": 10, "probe": 10}
    message = json.dumps({"seen": 10.0, "ready": 10.05, **durations})
    started = {"type": names.STARTED_CONDITION, "status": "True", "reason": "Zygote", "message": message}
    ready = {"type": "Ready", "status": "True"}
    pod = {"status": {"conditions": [ready, started]}}
    lines = [line.split() for line in sections.start(pod).splitlines()]
    assert lines[0] == ["PHASE", "MILLISECONDS", "SHARE"]
    assert ["spawn", "20.0", "40%"] in lines
    assert lines[-1][:3] == ["ready", "(zygote)", "50.0"]
    assert sections.without_start(pod["status"]["conditions"]) == [ready]
    assert sections.start({"status": {"conditions": [{**started, "message": "no JSON"}]}}) == ""
    assert sections.start({}) == ""


def test_a_section_has_escapes_for_what_a_terminal_would_obey() -> None:
    assert (
        sections.titled("Data", "a: 1\nb\x1b[31m\x0c\u2028: 2\n")
        == "Data:\n  a: 1\n  b\\x1b[31m\\x0c\\u2028: 2"
    )
    meta = {"name": "v1", "annotations": {"by": "\x1b]0;title\x07\n"}}
    head = sections.head(kinds.MODEL_VERSION, {"metadata": meta}, NOW)
    assert "\x1b" not in head
    assert head.count("\n") == 2


@pytest.mark.parametrize("kind", [kinds.SECRET, kinds.MODEL])
def test_the_manifest_of_kubectl_apply_is_not_shown_as_it_has_the_data_of_a_secret(kind: kinds.Kind) -> None:
    applied = {"kubectl.kubernetes.io/last-applied-configuration": '{"data":{"password":"c2VjcmV0"}}'}
    meta = {"name": "s", "annotations": {**applied, "by": "ann"}}
    head = sections.head(kind, {"metadata": meta}, NOW)
    assert "Annotation by:" in head
    assert "last-applied" not in head
    assert "c2VjcmV0" not in head
