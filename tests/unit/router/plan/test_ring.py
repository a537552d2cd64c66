from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from serving.planning.apportionment import RING_UNITS
from serving.router.plan.ring import add_unweighted, reassign_unready


def test_a_change_of_weights_keeps_the_order_of_the_ring() -> None:
    names = ["stable", "canary"]
    for keep_positions in (True, False):
        orders = {
            tuple(name for name, _ in add_unweighted(segments, names, keep_positions=keep_positions))
            for segments in (
                [("stable", RING_UNITS)],
                [("canary", RING_UNITS)],
                [("stable", 9000), ("canary", 1000)],
            )
        }
        assert orders == {("stable", "canary")}


def test_sticky_callers_keep_their_positions_when_a_backend_has_several_segments() -> None:
    segments = [("a", 4000), ("b", 2000), ("a", 4000)]
    assert add_unweighted(segments, ["a", "b", "c"], keep_positions=True) == [*segments, ("c", 0)]
    assert add_unweighted(segments, ["a", "b", "c"], keep_positions=False) == [
        ("a", 8000),
        ("b", 2000),
        ("c", 0),
    ]


_names = st.sampled_from("abcde")
_segments = st.lists(st.tuples(_names, st.integers(1, 4000)), min_size=1, max_size=30)


@given(_segments, st.sets(_names))
def test_reassignment_fills_the_ring_and_keeps_every_ready_unit_in_place(
    segments: list[tuple[str, int]], up: set[str]
) -> None:
    before = [name for name, size in segments for _ in range(size)]
    after = [name for name, size in reassign_unready(segments, up) for _ in range(size)]
    if not up & set(before):
        assert after == []
        return
    assert len(after) == len(before)
    assert set(after) <= up
    assert all(new == old for old, new in zip(before, after, strict=True) if old in up)
    share = Counter(name for name in before if name in up)
    for name, units in Counter(after).items():
        assert abs(units - len(before) * share[name] / share.total()) <= 2
