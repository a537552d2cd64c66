"""The table of `slipway top`."""

from typing import Any

import pytest

from serving.cli.objects import top
from serving.cli.target import NamedKind
from serving.resources import kinds, names


def _pod(name: str, *resources: dict[str, Any], arm: str = "") -> dict[str, Any]:
    labels = {names.INFERENCE_LABEL: "digits", names.PREDICTOR_LABEL: arm} if arm else {}
    containers = [{"name": f"c{n}", "resources": requirements} for n, requirements in enumerate(resources)]
    return {
        "metadata": {"name": name, "namespace": "ns", "labels": labels},
        "spec": {"containers": containers},
    }


def _usage(name: str, *used: tuple[str, str]) -> dict[str, Any]:
    containers = [
        {"name": f"c{n}", "usage": {"cpu": cpu, "memory": memory}} for n, (cpu, memory) in enumerate(used)
    ]
    return {"metadata": {"name": name, "namespace": "ns"}, "containers": containers}


LIMITS = {"cpu": "500m", "memory": "1Gi"}
BOTH = {"requests": LIMITS, "limits": LIMITS}


def test_a_row_has_usage_request_limit_and_share() -> None:
    _, (row,) = top.rows(
        [_pod("p", BOTH, arm="stable")], [_usage("p", ("250000000n", "262144Ki"))], namespaced=False
    )
    assert row == ["p", "digits", "stable", "250m", "500m", "500m", "50%", "256Mi", "1024Mi", "1024Mi", "25%"]


def test_usage_is_the_sum_of_containers() -> None:
    _, (row,) = top.rows(
        [_pod("p", BOTH, BOTH)], [_usage("p", ("100m", "1Gi"), ("150m", "512Mi"))], namespaced=False
    )
    assert row[3:] == ["250m", "1000m", "1000m", "25%", "1536Mi", "2048Mi", "2048Mi", "75%"]


def test_limit_is_unknown_when_one_container_has_none() -> None:
    _, (row,) = top.rows([_pod("p", BOTH, {})], [_usage("p", ("100m", "1Gi"))], namespaced=False)
    assert row[3:7] == ["100m", None, None, None]


def test_share_is_of_the_request_without_a_limit() -> None:
    _, (row,) = top.rows(
        [_pod("p", {"requests": {"cpu": "1"}})], [_usage("p", ("100m", "1Gi"))], namespaced=False
    )
    assert row[3:7] == ["100m", "1000m", None, "10%"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_has_no_row(phase: str) -> None:
    ended = {**_pod("p", arm="stable"), "status": {"phase": phase}}
    running = {**_pod("p", arm="stable"), "status": {"phase": "Running"}}
    for selected in (
        NamedKind(kinds.POD, None),
        NamedKind(kinds.POD, "p"),
        NamedKind(kinds.INFERENCE, "digits"),
    ):
        assert not top.is_selected(ended, [selected])
        assert top.is_selected(running, [selected])


def test_a_pod_without_usage_is_listed_with_its_requests() -> None:
    headers, (row,) = top.rows([_pod("p", BOTH)], [], namespaced=True)
    assert headers[:2] == ["Namespace", "Name"]
    assert row[:2] == ["ns", "p"]
    assert row[4:8] == [None, "500m", "500m", None]


def test_rows_are_ordered_by_inference_arm_and_name() -> None:
    pods = [_pod("z", arm="b"), _pod("y", arm="a"), _pod("x", arm="b")]
    _, rows = top.rows(pods, [], namespaced=False)
    assert [row[0] for row in rows] == ["y", "x", "z"]
