"""The sentences that say why a Pod's containers do not run."""

from typing import Any

import pytest

from serving.cli.objects.container_states import problems


def pod(state: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {"status": {"containerStatuses": [{"name": "main", "state": state}], **status}}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (
            {"waiting": {"reason": "CreateContainerConfigError", "message": "configmap 'nope'\nnot found"}},
            ["container main waits: CreateContainerConfigError: configmap 'nope' not found"],
        ),
        ({"waiting": {"reason": "ContainerCreating"}}, []),
        (
            {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file"}},
            ["container main ended with exit code 128: StartError: no such file"],
        ),
        ({"terminated": {"exitCode": 1}}, ["container main ended with exit code 1: no reason is known"]),
        ({"terminated": {"exitCode": 0, "reason": "Completed"}}, []),
        ({"running": {}}, []),
    ],
)
def test_a_container_that_waits_or_failed_is_named_with_reason_and_message(
    state: dict[str, Any], expected: list[str]
) -> None:
    assert problems(pod(state)) == expected


def test_an_init_container_that_failed_is_named_first() -> None:
    failed = {"name": "fetch", "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}
    waiting = {"waiting": {"reason": "PodInitializing"}}
    assert problems(pod(waiting, initContainerStatuses=[failed])) == [
        "container fetch ended with exit code 2: Error"
    ]


def test_a_pod_that_no_node_takes_is_reported_with_the_schedulers_message() -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no memory"}
    assert problems({"status": {"phase": "Pending", "conditions": [scheduled]}}) == [
        "no node takes the Pod: Unschedulable: no memory"
    ]
    assert problems({"status": {"phase": "Failed", "reason": "Evicted"}}) == ["the Pod failed: Evicted"]
    assert problems({}) == []
