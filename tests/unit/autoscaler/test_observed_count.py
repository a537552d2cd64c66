"""The desired count of a target, and the changes by other writers that it shows."""

from typing import Any

from autoscaler.observed_count import desired_count
from autoscaler.policy.config import PolicyConfig
from autoscaler.state.target_state import LastWrite, TargetState

MANAGER = "slipway-autoscaler"


def target(uid: str, count: int, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}, "spec": {"replicas": count}}


def test_count_of_a_new_target_is_no_change_by_others_when_it_replaces_the_old_one() -> None:
    state = TargetState(PolicyConfig())
    assert desired_count(state, target("old", 0), MANAGER, 0.0) == 0
    for i in range(3):
        state.unconfirmed_count = 0
        assert desired_count(state, target(f"new-{i}", i + 1), MANAGER, 5.0 * i) == i + 1
    assert (state.changes_by_others, state.raised.times) == ([], 0)
    assert desired_count(state, target("new-2", 7), MANAGER, 20.0) == 7
    assert (state.changes_by_others, state.raised.replicas) == ([20.0], 7)


def test_count_of_the_watch_is_returned_when_the_last_write_was_of_another_target() -> None:
    state = TargetState(PolicyConfig())
    desired_count(state, target("old", 2, version=8), MANAGER, 0.0)
    state.last_write = LastWrite(4, 9)
    assert desired_count(state, target("old", 2, version=8), MANAGER, 1.0) == 4
    assert desired_count(state, target("new", 2, version=7), MANAGER, 2.0) == 2
