"""The changes of a ModelVersion that need a new plan of the experiments that measure it."""

import copy
from typing import Any

import pytest

from tests.fakes.surroundings import ready_version
from tuner.controller import version_inputs

BLOCKED = {"phase": "Blocked", "conditions": [{"type": "Ready", "status": "False", "message": "has code"}]}


def changed(**status: Any) -> dict[str, Any]:
    version = copy.deepcopy(ready_version("v1"))
    version["metadata"] |= {"uid": "u", "resourceVersion": "9"}
    version["status"] |= status
    return version


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Pushing"},
        {"attempts": 3},
        {"conditions": [{"type": "Ready", "message": "a fifth is pushed"}]},
    ],
)
def test_progress_of_a_version_needs_no_plan(status: dict[str, Any]) -> None:
    assert version_inputs(changed(**status)) == version_inputs(changed())


@pytest.mark.parametrize("status", [{"image": "r/i:2"}, {"digest": "sha256:2"}, {"image": ""}, BLOCKED])
def test_plan_is_due_when_a_version_has_another_image_or_is_blocked(status: dict[str, Any]) -> None:
    assert version_inputs(changed(**status)) != version_inputs(changed())
