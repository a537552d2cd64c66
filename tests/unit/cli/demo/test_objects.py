"""Waits of `slipway demo` for its objects."""

from typing import Any

import pytest

from serving import errors
from serving.cli.demo import objects
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind
from tests.fakes.kube import FakeKube

CONTAINER = {"name": "main", "image": "python", "command": ["true"]}
SPECS: dict[Kind, Object] = {
    kinds.JOB: {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}},
    kinds.MODEL_VERSION: {"modelName": "digits", "source": {"path": "/somewhere"}},
}


def condition(type_: str, status: str, reason: str, message: str) -> Object:
    changed = "2026-01-01T00:00:00Z"
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": changed,
    }


def with_status(kind: Kind, status: Object) -> FakeKube:
    api = FakeKube()
    meta = {"name": "x", "namespace": objects.NAMESPACE}
    api.add(kind, {"metadata": meta, "spec": SPECS[kind], "status": status})
    return api


async def problem(kind: Kind, wanted: str, status: Object | None, **options: Any) -> str:
    """The message of a wait that fails; without a status there is no object."""
    api = FakeKube() if status is None else with_status(kind, status)
    with pytest.raises(errors.UserError) as raised:
        await objects.until(api, kind, "x", wanted, **options)
    return str(raised.value)


async def test_object_with_the_condition_is_returned() -> None:
    api = with_status(kinds.MODEL_VERSION, {"conditions": [condition("Ready", "True", "Built", "")]})
    obj = await objects.until(api, kinds.MODEL_VERSION, "x", "Ready", seconds=0)
    assert obj["metadata"]["name"] == "x"


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (None, "it does not exist"),
        ({}, "it has no status"),
        ({"active": 1, "ready": 0}, 'its status is {"active":1,"ready":0}'),
        ({"conditions": [condition("Complete", "False", "R", "m")]}, "R: m"),
    ],
)
async def test_wait_names_its_seconds_and_the_state_when_it_takes_too_long(
    status: Object | None, state: str
) -> None:
    message = await problem(kinds.JOB, "Complete", status, seconds=0)
    assert message == f"Job x did not become Complete within 0 s: {state}"


@pytest.mark.parametrize(
    ("kind", "wanted", "status"),
    [
        (kinds.JOB, "Complete", {"conditions": [condition("Failed", "True", "Limit", "3 attempts")]}),
        (
            kinds.MODEL_VERSION,
            "Ready",
            {"phase": "Failed", "conditions": [condition("Ready", "False", "Limit", "3 attempts")]},
        ),
    ],
)
async def test_wait_ends_at_once_when_the_object_has_failed_for_good(
    kind: Kind, wanted: str, status: Object
) -> None:
    assert await problem(kind, wanted, status) == f"{kind.kind} x failed: Limit: 3 attempts"
