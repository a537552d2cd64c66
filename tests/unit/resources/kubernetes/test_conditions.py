"""Conditions keep their transition time until the status changes."""

from hypothesis import given
from hypothesis import strategies as st

from serving.resources.kubernetes.conditions import Condition, aggregate, find, is_true, merge

STATUSES = st.sampled_from(["True", "False", "Unknown"])


def test_transition_time_stays_when_only_reason_and_message_change() -> None:
    first = merge(None, [Condition("Ready", "False", "Waiting", "a")], generation=1, now="t1")
    second = merge(first, [Condition("Ready", "False", "Building", "b")], generation=2, now="t2")
    assert second[0]["lastTransitionTime"] == "t1"
    assert (second[0]["reason"], second[0]["message"], second[0]["observedGeneration"]) == (
        "Building",
        "b",
        2,
    )


def test_transition_time_moves_when_status_changes() -> None:
    first = merge(None, [Condition("Ready", "False", "Waiting")], generation=1, now="t1")
    second = merge(first, [Condition("Ready", "True", "Ready")], generation=1, now="t2")
    assert second[0]["lastTransitionTime"] == "t2"


def test_condition_is_dropped_when_it_is_no_longer_given() -> None:
    first = merge(
        None, [Condition("Old", "True", "X"), Condition("Ready", "True", "X")], generation=1, now="t1"
    )
    assert find(merge(first, [Condition("Ready", "True", "X")], generation=1, now="t2"), "Old") is None


@given(st.lists(STATUSES, max_size=6))
def test_aggregate_is_true_only_when_every_part_is(statuses: list[str]) -> None:
    parts = [
        Condition(f"C{i}", status, f"R{i}")  # type: ignore[arg-type]
        for i, status in enumerate(statuses)
    ]
    ready = aggregate(parts)
    assert (ready.status == "True") == all(status == "True" for status in statuses)
    assert (ready.status == "False") == ("False" in statuses)


def test_aggregate_repeats_the_first_false_part() -> None:
    parts = [
        Condition("A", "Unknown", "Asking"),
        Condition("B", "False", "Broken", "why"),
        Condition("C", "False", "Late"),
    ]
    assert aggregate(parts) == Condition("Ready", "False", "Broken", "why")


def test_is_true_is_false_when_object_has_no_status() -> None:
    assert not is_true({"metadata": {}}, "Ready")
