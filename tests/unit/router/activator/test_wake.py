"""Where the time of a wake went."""

import json

import pytest

from serving.resources import names
from serving.router.activator import wake

SAID = {"seen": 100.2, "ready": 100.9, "fetch": 0, "verify": 1, "spawn": 100, "import": 300, "load": 50,
        "warmup": 5, "probe": 200}  # fmt: skip


def pod(message: str) -> dict[str, object]:
    return {
        "status": {"conditions": [{"type": names.STARTED_CONDITION, "status": "True", "message": message}]}
    }


def test_the_phases_are_in_order_and_add_up_to_the_total() -> None:
    found = wake.phases(100.0, 101.0, pod(json.dumps(SAID)))
    assert [name for name, _ in found] == ["decide", *wake.NODE_PHASES, "other", "routable"]
    assert sum(seconds for _, seconds in found) == pytest.approx(1.0)
    assert dict(found)["decide"] == pytest.approx(0.2)
    assert dict(found)["other"] == pytest.approx(0.044)
    assert dict(found)["routable"] == pytest.approx(0.1)
    told = wake.report("p", "2026-01-01T00:00:00Z", found)
    assert told["total"] == pytest.approx(1000, abs=0.01)
    assert sum(p["milliseconds"] for p in told["phases"]) == pytest.approx(told["total"], abs=0.01)


@pytest.mark.parametrize(
    "found",
    [None, {}, pod(""), pod("[]"), pod("{}"), pod("no JSON"), pod('{"seen": 99, "ready": 100.5}'),
     pod('{"seen": 100.5, "ready": 102}'), pod('{"seen": "soon", "ready": 100.5}')],
)  # fmt: skip
def test_what_the_node_did_not_say_or_says_of_another_start_is_one_phase(
    found: dict[str, object] | None,
) -> None:
    assert wake.phases(100.0, 101.0, found) == [("other", 1.0)]


def test_a_standby_replica_had_only_to_be_chosen() -> None:
    before = json.dumps({**SAID, "seen": 50.0, "ready": 60.0})
    assert wake.phases(100.0, 100.25, pod(before)) == [("decide", 0.25)]
