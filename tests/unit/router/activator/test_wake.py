"""The phases of a wake."""

import json

import pytest

from serving.resources import names
from serving.router.activator import wake

NODE_REPORT = {
    "seen": 100.2,
    "ready": 100.9,
    "fetch": 0,
    "verify": 1,
    "spawn": 100,
    "import": 300,
    "load": 50,
    "warmup": 5,
    "probe": 200,
}


def pod(message: str) -> dict[str, object]:
    return {
        "status": {"conditions": [{"type": names.STARTED_CONDITION, "status": "True", "message": message}]}
    }


def test_phases_are_in_order_and_add_up_to_the_total() -> None:
    phases = wake.phases(100.0, 101.0, pod(json.dumps(NODE_REPORT)))
    assert [name for name, _ in phases] == ["decide", *names.START_PHASES, "other", "routable"]
    assert sum(seconds for _, seconds in phases) == pytest.approx(1.0)
    assert dict(phases)["decide"] == pytest.approx(0.2)
    assert dict(phases)["other"] == pytest.approx(0.044)
    assert dict(phases)["routable"] == pytest.approx(0.1)
    report = wake.report("p", "2026-01-01T00:00:00Z", phases)
    assert report["total"] == pytest.approx(1000, abs=0.01)
    assert sum(p["milliseconds"] for p in report["phases"]) == pytest.approx(report["total"], abs=0.01)


@pytest.mark.parametrize(
    "woken_pod",
    [
        None,
        {},
        pod(""),
        pod("[]"),
        pod("{}"),
        pod("no JSON"),
        pod('{"seen": 99, "ready": 100.5}'),
        pod('{"seen": 100.5, "ready": 102}'),
        pod('{"seen": "soon", "ready": 100.5}'),
    ],
)
def test_wake_without_a_matching_node_report_is_one_phase(
    woken_pod: dict[str, object] | None,
) -> None:
    assert wake.phases(100.0, 101.0, woken_pod) == [("other", 1.0)]


def test_wake_of_a_standby_replica_is_one_decide_phase() -> None:
    earlier_report = json.dumps({**NODE_REPORT, "seen": 50.0, "ready": 60.0})
    assert wake.phases(100.0, 100.25, pod(earlier_report)) == [("decide", 0.25)]
