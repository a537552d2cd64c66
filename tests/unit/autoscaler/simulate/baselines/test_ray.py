from autoscaler.simulate.baselines.ray import RayServe
from tests.unit.autoscaler.simulate.baselines.observations import BaselineService, inputs


def test_scale_up_waits_for_thirty_seconds_of_the_same_decision() -> None:
    service = BaselineService(RayServe(inputs()), ready=2)
    counts = service.ticks(60, 35)
    assert counts.index(5) * 5 == 30


def test_scale_down_waits_for_ten_minutes_of_the_same_decision() -> None:
    service = BaselineService(RayServe(inputs()), ready=5)
    counts = service.ticks(700, 7)
    assert counts.index(1) * 5 == 600


def test_reversed_decision_restarts_its_delay() -> None:
    service = BaselineService(RayServe(inputs()), ready=5)
    service.ticks(590, 7)
    service.ticks(60, 35)
    assert 1 not in service.ticks(590, 7)


def test_the_requests_are_a_mean_of_thirty_seconds() -> None:
    service = BaselineService(RayServe(inputs()), ready=1)
    service.ticks(60, 7)
    counts = service.ticks(30, 42)
    assert counts == [1] * 6
    assert service.tick(42).replicas == 6


def test_zero_is_reached_from_one_replica_only() -> None:
    service = BaselineService(RayServe(inputs()), ready=3)
    counts = service.ticks(1400, 0)
    assert [5 * counts.index(number) for number in (1, 0)] == [600, 1200]


def test_a_first_request_is_not_delayed() -> None:
    service = BaselineService(RayServe(inputs()))
    assert [service.tick(at).replicas for at in (0, 1)] == [0, 1]
