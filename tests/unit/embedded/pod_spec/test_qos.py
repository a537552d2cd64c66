from typing import Any

import pytest

from serving.embedded.pod_spec.qos import oom_score_adjustment, qos_class


def spec(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"containers": [{"name": str(n), "resources": c} for n, c in enumerate(containers)]}


WHOLE = {"cpu": "500m", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"limits": {"cpu": "0", "memory": "0"}}], "BestEffort"),
        ([{"limits": {"nvidia.com/gpu": "1"}}], "BestEffort"),
        ([{"limits": WHOLE}], "Guaranteed"),
        ([{"limits": WHOLE, "requests": {"cpu": "0.5", "memory": "1024Mi"}}], "Guaranteed"),
        ([{"limits": WHOLE, "requests": {"cpu": "250m"}}], "Burstable"),
        ([{"requests": WHOLE}], "Burstable"),
        ([{"limits": {"cpu": "1"}}], "Burstable"),
        ([{"limits": WHOLE}, {}], "Burstable"),
    ],
)
def test_class_is_that_of_kubernetes(containers: list[dict[str, Any]], expected: str) -> None:
    assert qos_class(spec(*containers)) == expected


def test_init_container_counts() -> None:
    pod = {**spec({"limits": WHOLE}), "initContainers": [{"name": "i", "resources": {}}]}
    assert qos_class(pod) == "Burstable"


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, 1000),
        ({"limits": WHOLE}, 2),
        ({"requests": {"cpu": "1"}}, 999),
        ({"requests": {"memory": "1Gi"}}, 750),
        ({"requests": {"memory": "8Gi"}}, 2),
    ],
)
def test_oom_score_is_lower_the_more_memory_is_requested(resources: dict[str, Any], expected: int) -> None:
    pod = spec(resources)
    assert oom_score_adjustment(pod, pod["containers"][0], 4 * 1024**3) == expected
