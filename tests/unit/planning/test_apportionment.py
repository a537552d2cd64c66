from hypothesis import given
from hypothesis import strategies as st

from serving.planning.apportionment import apportion, apportion_at_least_one
from serving.resources.traffic_split import RING_UNITS

weights = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1000), min_size=1).filter(
    lambda w: sum(w.values()) > 0
)


@given(weights, st.integers(1, 20_000))
def test_apportioned_units_sum_to_the_total_and_are_within_one_of_exact(
    weights_by_owner: dict[str, int], units: int
) -> None:
    shares = apportion(weights_by_owner, units)
    assert sum(shares.values()) == units
    for owner, weight in weights_by_owner.items():
        assert (owner in shares) == (weight > 0)
        assert abs(shares.get(owner, 0) - weight * units / sum(weights_by_owner.values())) < 1


@given(weights)
def test_every_positive_weight_has_a_unit_of_the_ring(weights_by_owner: dict[str, int]) -> None:
    shares = apportion_at_least_one(weights_by_owner)
    assert sum(shares.values()) == RING_UNITS
    for owner, weight in weights_by_owner.items():
        assert (owner in shares) == (weight > 0)
        assert abs(shares.get(owner, 0) - weight * RING_UNITS / sum(weights_by_owner.values())) < 6


def test_ties_go_to_the_earlier_owner() -> None:
    assert apportion({"a": 1, "b": 1, "c": 1}, 4) == {"a": 2, "b": 1, "c": 1}


def test_a_tiny_weight_gets_one_unit_rather_than_none() -> None:
    assert apportion_at_least_one({"big": 1_000_000, "tiny": 1}) == {"big": 9_999, "tiny": 1}


def test_apportionment_is_empty_without_a_positive_weight() -> None:
    assert apportion({"a": 0}) == apportion_at_least_one({}) == {}
