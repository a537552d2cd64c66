from autoscaler.simulate.baselines.keda import Keda
from tests.unit.autoscaler.simulate.baselines.observations import BaselineService, inputs


def test_zero_is_left_at_the_next_look_at_the_trigger() -> None:
    service = BaselineService(Keda(inputs()))
    assert [service.tick(at).replicas for at in (0, 3, 3)] == [0, 0, 1]


def test_activation_gives_a_single_replica_and_the_hpa_the_rest() -> None:
    service = BaselineService(Keda(inputs()))
    assert service.tick(70).replicas == 1
    assert service.tick(70).replicas == 5
    assert service.tick(70).replicas == 10


def test_the_trigger_counts_replicas_that_start() -> None:
    service = BaselineService(Keda(inputs()), ready=1)
    service.tick(70)
    assert [service.tick(70).replicas for _ in range(5)] == [10] * 5


def test_zero_comes_after_the_cooldown_from_the_last_activity() -> None:
    service = BaselineService(Keda(inputs()), ready=1)
    service.tick(5)
    counts = [service.tick(0).replicas for _ in range(24)]
    assert counts.index(0) == 21  # at 330 s: the first look after more than 300 s
    assert set(counts[21:]) == {0}


def test_a_minimum_keeps_it_from_zero() -> None:
    service = BaselineService(Keda(inputs(least=2)), ready=2)
    assert set(service.ticks(3600, 0)) == {2}


def test_scale_down_is_that_of_an_hpa() -> None:
    service = BaselineService(Keda(inputs()), ready=10)
    counts = service.ticks(600, 14)
    assert counts.index(2) == 20
