"""Weights and shares of `slipway traffic set`."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.cli import traffic_weights
from serving.resources.inference import Predictor
from serving.resources.traffic_split import HEAVIEST_WEIGHT


@pytest.mark.parametrize(
    "word",
    ["stable", "=5", "stable=", "stable=-1", "stable=1.5", "stable=²", "stable=a", "=5%", "a=-1%", "a=%"],
)
def test_an_invalid_weight_is_refused_with_an_example(word: str) -> None:
    with pytest.raises(errors.UserError, match="ARM=WEIGHT"):
        traffic_weights.parse([word])


@pytest.mark.parametrize("words", [["a=1", "a=2"], ["a=1%", "a=2%"]])
def test_an_arm_named_twice_is_refused(words: list[str]) -> None:
    with pytest.raises(errors.UserError, match="twice"):
        traffic_weights.parse(words)


def test_weights_beside_shares_are_refused() -> None:
    with pytest.raises(errors.UserError, match="not both"):
        traffic_weights.parse(["a=1", "b=50%"])


@pytest.mark.parametrize("weight", ["1000001", "99999999999999999999", "9" * 5000])
def test_a_weight_above_the_schemas_bound_is_refused_by_field_and_rule(weight: str) -> None:
    with pytest.raises(errors.UserError, match="trafficWeight of stable must be at most 1000000"):
        traffic_weights.parse([f"stable={weight}"])


def test_the_heaviest_weight_is_the_bound_of_the_schema() -> None:
    bounds = Predictor.model_json_schema()["properties"]["trafficWeight"]
    assert bounds["maximum"] == HEAVIEST_WEIGHT
    assert traffic_weights.parse([f"a={HEAVIEST_WEIGHT}"]) == {"a": HEAVIEST_WEIGHT}


@pytest.mark.parametrize(
    ("current", "words", "expected"),
    [
        ({"a": 90, "b": 10}, ["b=25%"], {"b": 30}),
        ({"a": 90, "b": 10}, ["a=90%"], {"a": 90}),
        ({"a": 1, "b": 1}, ["a=70%"], {"a": 70, "b": 30}),
        ({"a": 1, "b": 1}, ["a=99.5%", "b=0.5%"], {"a": 199, "b": 1}),
        ({"a": 3, "b": 5, "c": 0}, ["a=100%"], {"a": 100, "b": 0}),
        ({"a": 1, "b": 1, "c": 2}, ["a=10%"], {"a": 10, "b": 30, "c": 60}),
    ],
)
def test_shares_become_whole_weights_and_change_other_arms_only_where_they_must(
    current: dict[str, int], words: list[str], expected: dict[str, int]
) -> None:
    assert traffic_weights.resolved(current, traffic_weights.parse(words)) == expected


@pytest.mark.parametrize(
    ("current", "words", "message"),
    [
        ({"a": 1, "b": 1}, ["a=60%", "b=50%"], "110 %"),
        ({"a": 1, "b": 1}, ["a=60%", "b=30%"], "90 %"),
        ({"a": 1, "b": 0}, ["a=60%"], "weight 0"),
    ],
)
def test_shares_that_are_not_the_whole_are_refused(
    current: dict[str, int], words: list[str], message: str
) -> None:
    with pytest.raises(errors.UserError, match=message):
        traffic_weights.resolved(current, traffic_weights.parse(words))


@given(
    current=st.dictionaries(st.sampled_from("bcd"), st.integers(1, HEAVIEST_WEIGHT), min_size=1),
    share=st.decimals(min_value="0.1", max_value="99.9", places=1),
)
def test_a_share_is_met_and_the_other_arms_keep_their_proportions(
    current: dict[str, int], share: object
) -> None:
    before = {"a": 1, **current}
    after = before | traffic_weights.resolved(before, traffic_weights.parse([f"a={share}%"]))
    total = sum(after.values())
    assert all(0 < weight <= HEAVIEST_WEIGHT for weight in after.values())
    assert abs(Fraction(after["a"], total) - Fraction(str(share)) / 100) < Fraction(1, 100_000)
    rest = 1 - Fraction(after["a"], total)
    for arm, weight in current.items():
        wanted = rest * Fraction(weight, sum(current.values()))
        assert abs(Fraction(after[arm], total) - wanted) < Fraction(1, 100_000)
