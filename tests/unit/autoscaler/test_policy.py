from autoscaler import policy


def test_a_count_within_bounds_is_kept() -> None:
    assert policy.decide(3, 1, 5).replicas == 3


def test_the_nearest_bound_is_taken_when_outside() -> None:
    assert policy.decide(0, 1, 5).replicas == 1
    assert policy.decide(9, 1, 5).replicas == 5
