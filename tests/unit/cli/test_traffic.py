from fractions import Fraction

import pytest

from serving import errors
from serving.cli import traffic

OBJ = {"metadata": {"name": "digits"}, "spec": {"predictors": [{"name": "stable"}, {"name": "canary"}]}}


def test_an_unknown_arm_is_refused_with_the_known_arms() -> None:
    with pytest.raises(errors.UserError, match="its arms are stable, canary"):
        traffic.patch(OBJ, {"other": 1})


def test_the_patch_changes_the_named_arm_and_tests_its_position() -> None:
    assert traffic.patch(OBJ, {"canary": 5}) == [
        {"op": "test", "path": "/spec/predictors/1/name", "value": "canary"},
        {"op": "add", "path": "/spec/predictors/1/trafficWeight", "value": 5},
    ]


def test_the_patch_of_a_share_changes_every_arm_that_must_change() -> None:
    values = {each["path"]: each["value"] for each in traffic.patch(OBJ, {"stable": Fraction(70)})}
    assert values["/spec/predictors/0/trafficWeight"] == 70
    assert values["/spec/predictors/1/trafficWeight"] == 30
