import pytest

from autoscaler.simulate.baselines.knative import KPA_TUNED, Kpa, KpaConfig
from tests.unit.autoscaler.simulate.baselines.observations import BaselineService, inputs


def calm(policy: Kpa, ready: int, present: float) -> BaselineService:
    """Return a service after minutes of even load, out of the panic in which a decider begins."""
    service = BaselineService(policy, ready)
    service.ticks(180, present)
    return service


def test_decider_of_several_replicas_begins_in_panic_until_the_stable_window_ends() -> None:
    service = BaselineService(Kpa(inputs()), ready=10)
    reasons = [service.tick(35).reason for _ in range(40)]
    assert reasons.index("Stable") == 31  # the first tick more than 60 s after that of 2 s


def test_even_load_has_the_replicas_of_its_target() -> None:
    assert calm(Kpa(inputs()), 10, 35).desired == 5  # 35 / (70 % of 10)
    assert calm(Kpa(inputs()), 10, 35.1).desired == 6


def test_panic_begins_at_twice_the_ready_replicas() -> None:
    below = calm(Kpa(inputs()), 5, 35)
    for _ in range(3):
        below.tick(62)  # ceil(62 / 7) = 9 of 5
    assert below.tick(62).reason == "Stable"
    above = calm(Kpa(inputs()), 5, 35)
    for _ in range(2):
        above.tick(64)
    decision = above.tick(64)  # ceil(64 / 7) = 10 of 5
    assert (decision.reason, decision.replicas) == ("Panic", 10)


def test_the_stable_window_is_a_minute_and_the_panic_window_a_tenth() -> None:
    service = calm(Kpa(inputs()), 5, 35)
    assert service.tick(62).replicas == 6  # (58 * 35 + 2 * 62) / 60 = 35.9 over 7
    assert [service.tick(62).replicas for _ in range(29)][-1] == 9


def test_no_replica_is_removed_in_panic() -> None:
    service = calm(Kpa(inputs()), 5, 35)
    for _ in range(3):
        service.tick(200)
    most = service.desired
    assert most == 29
    service.start()
    calm_ticks = [service.tick(7) for _ in range(31)]
    assert {decision.replicas for decision in calm_ticks[:29]} == {most}
    assert calm_ticks[-1].reason == "Stable"


def test_panic_lasts_a_stable_window_after_the_last_time_over_the_threshold() -> None:
    service = calm(Kpa(inputs()), 5, 35)
    for _ in range(3):
        service.tick(70)
    service.start()
    reasons = [service.tick(35).reason for _ in range(40)]
    assert reasons.index("Stable") == 30


def test_at_most_half_of_the_ready_replicas_go_at_once() -> None:
    service = calm(Kpa(inputs()), 100, 700)
    counts = service.ticks(120, 0.7)
    steps = [after for before, after in zip([100, *counts], counts, strict=False) if after < before / 2 - 1]
    assert not steps
    slow = BaselineService(Kpa(inputs(), KpaConfig(max_scale_down=1.25)), ready=100)
    assert min(slow.ticks(64, 0)) == 80


def test_scale_up_is_limited_to_a_thousand_times() -> None:
    service = BaselineService(Kpa(inputs(most=5000)), ready=1)
    assert service.tick(70_000).replicas == 1000


def test_replicas_that_start_are_asked_for_and_not_added_again() -> None:
    service = BaselineService(Kpa(inputs()), ready=1)
    assert {service.tick(70).replicas for _ in range(10)} == {10}


def test_zero_comes_when_the_stable_window_is_empty() -> None:
    service = calm(Kpa(inputs()), 1, 5)
    counts = [service.tick(0).replicas for _ in range(40)]
    assert counts.index(0) == 29  # 60 s: the activator was in the path for longer than the grace


def test_zero_waits_for_the_grace_where_the_activator_was_not_in_the_path() -> None:
    service = calm(Kpa(inputs(concurrency=300)), 1, 5)
    counts = [service.tick(0).replicas for _ in range(60)]
    assert counts.index(0) == 29 + 15


def test_a_replica_is_active_for_a_stable_window_before_it_goes() -> None:
    service = BaselineService(Kpa(inputs()), ready=1)
    counts = [service.tick(0).replicas for _ in range(40)]
    assert counts.index(0) == 30


def test_the_tuned_one_keeps_the_last_replica_for_its_retention() -> None:
    service = BaselineService(Kpa(inputs(), KPA_TUNED), ready=1)
    service.ticks(400, 5)
    counts = [service.tick(0).replicas for _ in range(700)]
    assert counts.index(0) * 2 == pytest.approx(300 + 900, abs=4)


def test_request_in_the_retention_restarts_it() -> None:
    service = BaselineService(Kpa(inputs(), KPA_TUNED), ready=1)
    service.ticks(400, 5)
    service.ticks(1000, 0)
    service.tick(1)
    assert 0 not in service.ticks(1000, 0)


def test_starting_replica_is_not_removed() -> None:
    service = BaselineService(Kpa(inputs()))
    service.tick(1)
    assert {service.tick(0).replicas for _ in range(100)} == {1}


def test_a_first_request_starts_a_replica_at_once() -> None:
    service = BaselineService(Kpa(inputs()))
    assert [service.tick(at).replicas for at in (0, 0, 1)] == [0, 0, 1]
