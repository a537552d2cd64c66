from serving.embedded.pod_spec.resource_limits import ContainerLimits, limits


def test_memory_is_at_most_the_largest_quantity_of_kubernetes() -> None:
    assert limits({"resources": {"limits": {"memory": "1e30"}}}).memory == 2**63 - 1
    assert limits({"resources": {"limits": {"memory": "1Gi"}}}).memory == 1 << 30


def test_amount_of_0_is_no_limit() -> None:
    assert limits({"resources": {"limits": {"memory": "0", "cpu": "0m"}}}) == ContainerLimits()
