from decimal import Decimal

from serving.resources.kubernetes import pod_resources


def test_a_total_is_the_sum_over_containers_and_none_when_a_container_lacks_the_bound() -> None:
    limited = {"resources": {"limits": {"cpu": "500m", "memory": "1Mi"}, "requests": {"cpu": 1}}}
    spec = {"containers": [limited, limited]}
    assert pod_resources.total(spec, "limits", "cpu") == Decimal(1)
    assert pod_resources.total(spec, "limits", "memory") == Decimal(2 * 1024 * 1024)
    assert pod_resources.total(spec, "requests", "cpu") == Decimal(2)
    assert pod_resources.total(spec, "requests", "memory") is None
    for unlimited in ({}, {"resources": None}, {"resources": {"limits": {"cpu": None}}}):
        assert pod_resources.total({"containers": [limited, unlimited]}, "limits", "cpu") is None
