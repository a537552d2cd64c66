import bisect
import hashlib
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.planning.apportionment import apportion_at_least_one
from serving.planning.inference import traffic
from serving.planning.inference.traffic import ArmSegment
from serving.resources.traffic_split import RING_UNITS

ARMS = [f"arm{i}" for i in range(6)]
weights = st.dictionaries(st.sampled_from(ARMS), st.integers(0, 1000), min_size=1).filter(
    lambda w: sum(w.values()) > 0
)


def total_variation(old: dict[str, int], new: dict[str, int]) -> int:
    return sum(max(0, old.get(arm, 0) - new.get(arm, 0)) for arm in ARMS)


def moved(old_ring: tuple[ArmSegment, ...], new_ring: tuple[ArmSegment, ...]) -> int:
    """Count the units that changed their arm."""
    return sum(a != b for a, b in zip(_arms(old_ring), _arms(new_ring), strict=True))


def sizes(ring: tuple[ArmSegment, ...]) -> dict[str, int]:
    units: dict[str, int] = {}
    for segment in ring:
        units[segment.arm] = units.get(segment.arm, 0) + segment.size
    return units


@given(st.lists(weights, min_size=2, max_size=12))
def test_every_change_of_weights_moves_as_few_callers_as_possible(steps: list[dict[str, int]]) -> None:
    ring: tuple[ArmSegment, ...] = ()
    for step in steps:
        target = apportion_at_least_one(step)
        new_ring = traffic.reassign(ring, target)
        assert sizes(new_ring) == target
        assert all(a.arm != b.arm for a, b in pairwise(new_ring))
        if ring:
            assert moved(ring, new_ring) == total_variation(sizes(ring), target)
        ring = new_ring


def test_no_caller_leaves_an_arm_whose_weight_grows() -> None:
    old_ring = traffic.reassign((), apportion_at_least_one({"a": 90, "b": 10}))
    new_ring = traffic.reassign(old_ring, apportion_at_least_one({"a": 50, "b": 30, "c": 20}))
    moves = [(x, y) for x, y in zip(_arms(old_ring), _arms(new_ring), strict=True) if x != y]
    assert {x for x, _ in moves} == {"a"}


def test_a_change_and_its_reversal_restore_the_ring() -> None:
    original = traffic.reassign((), apportion_at_least_one({"a": 90, "b": 10}))
    changed = traffic.reassign(original, apportion_at_least_one({"a": 50, "b": 50}))
    assert traffic.reassign(changed, apportion_at_least_one({"a": 90, "b": 10})) == original


def test_ten_thousand_callers_move_no_more_than_the_weights_and_never_back() -> None:
    def arm(caller: int, ring: tuple[ArmSegment, ...]) -> str:
        point = int.from_bytes(hashlib.sha256(f"salt/{caller}".encode()).digest()[:8]) % RING_UNITS
        return ring[bisect.bisect_right(list(accumulate(s.size for s in ring)), point)].arm

    ring = traffic.reassign((), apportion_at_least_one({"a": 95, "b": 5}))
    old_arms = [arm(caller, ring) for caller in range(10_000)]
    moved_callers: set[int] = set()
    for share in (10, 25, 50, 100):
        ring = traffic.reassign(ring, apportion_at_least_one({"a": 100 - share, "b": share}))
        new_arms = [arm(caller, ring) for caller in range(10_000)]
        moved_callers |= {
            i for i, (x, y) in enumerate(zip(old_arms, new_arms, strict=True)) if x == "a" and y == "b"
        }
        assert all(new_arms[i] == "b" for i in moved_callers)
        assert abs(sum(x == "b" for x in new_arms) / 10_000 - share / 100) < 0.02
        old_arms = new_arms


def test_ring_is_rebuilt_when_it_has_too_many_segments() -> None:
    ring = tuple(ArmSegment("a" if i % 2 else "b", 10) for i in range(1000))
    new_ring = traffic.reassign(ring, {"a": 5000, "b": 5000})
    assert new_ring == (ArmSegment("a", 5000), ArmSegment("b", 5000))


@pytest.mark.parametrize("sizes_by_arm", [{"a": 6_000, "b": 3_000}, {"a": 9_000, "b": 9_000}, {}])
def test_ring_is_rebuilt_when_it_does_not_sum_to_its_units(sizes_by_arm: dict[str, int]) -> None:
    ring = tuple(ArmSegment(arm, size) for arm, size in sizes_by_arm.items())
    target = {"a": 6_000, "b": 4_000}
    assert traffic.reassign(ring, target) == (ArmSegment("a", 6_000), ArmSegment("b", 4_000))


def _arms(ring: tuple[ArmSegment, ...]) -> list[str]:
    return [s.arm for s in ring for _ in range(s.size)]


def test_the_share_of_an_unproven_arm_goes_to_the_proven_ones_in_proportion() -> None:
    weights = {"a": 60, "b": 20, "c": 20}
    assert traffic.target_units((), weights, {"a", "b"}) == {"a": 7_500, "b": 2_500}
    assert traffic.target_units((), weights, ()) == {}


def test_share_of_an_unproven_arm_stays_with_removed_arms() -> None:
    ring = (ArmSegment("a", 6_000), ArmSegment("old", 3_000), ArmSegment("older", 1_000))
    target = traffic.target_units(ring, {"a": 60, "new": 40}, {"a"})
    assert target == {"a": 6_000, "old": 3_000, "older": 1_000}
    zeros = traffic.target_units(ring, {"a": 60, "old": 0, "older": 0, "new": 40}, {"a", "old", "older"})
    assert zeros == target, "an arm whose weight is 0 now leaves as well"


def test_arm_without_weight_gets_nothing_when_it_has_no_units() -> None:
    ring = (ArmSegment("a", 10_000),)
    assert traffic.target_units(ring, {"a": 60, "idle": 0, "new": 40}, {"a", "idle"}) == {"a": 10_000}
