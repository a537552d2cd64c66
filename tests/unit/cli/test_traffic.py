import pytest

from serving import errors
from serving.cli import traffic

OBJ = {"metadata": {"name": "digits"}, "spec": {"predictors": [{"name": "stable"}, {"name": "candidate"}]}}


@pytest.mark.parametrize(
    "word", ["stable", "=5", "stable=", "stable=-1", "stable=1.5", "stable=²", "stable=a"]
)
def test_an_invalid_weight_is_refused_with_an_example(word: str) -> None:
    with pytest.raises(errors.UserError, match="ARM=WEIGHT"):
        traffic.parse([word])


def test_an_arm_named_twice_is_refused() -> None:
    with pytest.raises(errors.UserError, match="twice"):
        traffic.parse(["a=1", "a=2"])


def test_an_unknown_arm_is_refused_with_the_known_arms() -> None:
    with pytest.raises(errors.UserError, match="its arms are stable, candidate"):
        traffic.patch(OBJ, {"other": 1})


def test_the_patch_changes_the_named_arm_and_tests_its_position() -> None:
    assert traffic.patch(OBJ, {"candidate": 5}) == [
        {"op": "test", "path": "/spec/predictors/1/name", "value": "candidate"},
        {"op": "add", "path": "/spec/predictors/1/trafficWeight", "value": 5},
    ]
