import bisect
import hashlib
from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from serving.planning.apportionment import RING_UNITS, apportion_at_least_one
from serving.planning.inference import traffic
from serving.planning.inference.traffic import Segment

ARMS = [f"arm{i}" for i in range(6)]
weights = st.dictionaries(st.sampled_from(ARMS), st.integers(0, 1000), min_size=1).filter(
    lambda w: sum(w.values()) > 0
)


def total_variation(before: dict[str, int], after: dict[str, int]) -> int:
    return sum(max(0, before.get(arm, 0) - after.get(arm, 0)) for arm in ARMS)


def moved(before: tuple[Segment, ...], after: tuple[Segment, ...]) -> int:
    """Count the units that changed their owner."""
    return sum(a != b for a, b in zip(_owners(before), _owners(after), strict=True))


def sizes(ring: tuple[Segment, ...]) -> dict[str, int]:
    units: dict[str, int] = {}
    for segment in ring:
        units[segment.owner] = units.get(segment.owner, 0) + segment.size
    return units


@given(st.lists(weights, min_size=2, max_size=12))
def test_every_change_of_weights_moves_as_few_callers_as_possible(steps: list[dict[str, int]]) -> None:
    ring: tuple[Segment, ...] = ()
    for step in steps:
        target = apportion_at_least_one(step)
        after = traffic.reassign(ring, target)
        assert sizes(after) == target
        assert all(a.owner != b.owner for a, b in pairwise(after))
        if ring:
            assert moved(ring, after) == total_variation(sizes(ring), target)
        ring = after


def test_no_caller_leaves_an_arm_whose_weight_grows() -> None:
    before = traffic.reassign((), apportion_at_least_one({"a": 90, "b": 10}))
    after = traffic.reassign(before, apportion_at_least_one({"a": 50, "b": 30, "c": 20}))
    owners = [(x, y) for x, y in zip(_owners(before), _owners(after), strict=True) if x != y]
    assert {x for x, _ in owners} == {"a"}


def test_a_change_and_its_reversal_restore_the_ring() -> None:
    first = traffic.reassign((), apportion_at_least_one({"a": 90, "b": 10}))
    there = traffic.reassign(first, apportion_at_least_one({"a": 50, "b": 50}))
    assert traffic.reassign(there, apportion_at_least_one({"a": 90, "b": 10})) == first


def test_ten_thousand_callers_move_by_at_most_the_change_and_none_moves_back() -> None:
    def arm(caller: int, ring: tuple[Segment, ...]) -> str:
        point = int.from_bytes(hashlib.sha256(f"salt/{caller}".encode()).digest()[:8]) % RING_UNITS
        return ring[bisect.bisect_right(list(accumulate(s.size for s in ring)), point)].owner

    ring = traffic.reassign((), apportion_at_least_one({"a": 95, "b": 5}))
    seen = [arm(caller, ring) for caller in range(10_000)]
    left: set[int] = set()
    for share in (10, 25, 50, 100):
        ring = traffic.reassign(ring, apportion_at_least_one({"a": 100 - share, "b": share}))
        now = [arm(caller, ring) for caller in range(10_000)]
        left |= {i for i, (x, y) in enumerate(zip(seen, now, strict=True)) if x == "a" and y == "b"}
        assert all(now[i] == "b" for i in left)
        assert abs(sum(x == "b" for x in now) / 10_000 - share / 100) < 0.02
        seen = now


def test_the_ring_is_laid_out_anew_when_it_has_too_many_segments() -> None:
    ring = tuple(Segment("a" if i % 2 else "b", 10) for i in range(1000))
    after = traffic.reassign(ring, {"a": 5000, "b": 5000})
    assert after == (Segment("a", 5000), Segment("b", 5000))


def _owners(ring: tuple[Segment, ...]) -> list[str]:
    return [s.owner for s in ring for _ in range(s.size)]


def test_the_share_of_an_unproven_arm_goes_to_the_proven_ones_in_proportion() -> None:
    weights = {"a": 60, "b": 20, "c": 20}
    assert traffic.target_units((), weights, {"a", "b"}) == {"a": 7_500, "b": 2_500}
    assert traffic.target_units((), weights, ()) == {}


def test_the_share_of_an_unproven_arm_stays_with_arms_that_have_left_the_spec() -> None:
    ring = (Segment("a", 6_000), Segment("old", 3_000), Segment("older", 1_000))
    target = traffic.target_units(ring, {"a": 60, "new": 40}, {"a"})
    assert target == {"a": 6_000, "old": 3_000, "older": 1_000}
