import math

import pytest

from autoscaler.observation import Load
from autoscaler.simulate.baselines.ahpa import Ahpa
from autoscaler.simulate.baselines.minutes import Minutes
from autoscaler.simulate.policy_inputs import LoadHistory
from tests.unit.autoscaler.simulate.baselines.observations import START, BaselineService, history, inputs

DAY = 1440


def days(minutes: int) -> list[float]:
    """Return work up to the start: 100 a second from 20 to 80 minutes after that time of day, else 10."""
    return [60.0 * (100 if 20 <= at % DAY < 80 else 10) for at in range(-minutes, 0)]


def test_work_is_spread_over_the_minutes_of_its_span() -> None:
    minutes = Minutes(LoadHistory(), 1)
    minutes.see(Load(START, START + 30, 0, 60, 0, 0, 0))
    assert minutes.see(Load(START + 30, START + 150, 0, 240, 0, 0, 0)) == 2
    first = int(START // 60)
    assert [minutes.of(first + at) for at in range(3)] == [pytest.approx(2), pytest.approx(2), None]
    assert minutes.known == 2


def test_minutes_keep_a_number_of_days() -> None:
    minutes = Minutes(history([60.0] * DAY + [120.0] * DAY), 1)
    last = int(START // 60)
    assert minutes.known == DAY
    assert [minutes.of(last - at) for at in (1, 2, DAY + 1, DAY + 2)] == [None, 2, 1, None]


def test_a_span_of_minutes_goes_round_the_days_that_are_kept() -> None:
    minutes = Minutes(history([60.0 * at for at in range(3 * DAY)]), 2)
    last = int(START // 60)
    for count in (5, 2 * DAY):
        span = minutes.span(last - 1 - count, count)
        assert span == pytest.approx(range(3 * DAY - 1 - count, 3 * DAY - 1))


def test_the_hour_of_other_days_is_ordered_a_start_ahead() -> None:
    service = BaselineService(Ahpa(inputs(history=history(days(7 * DAY + 10)))), ready=2)
    counts = []
    for _ in range(80):
        decision = service.tick(10, rate=10, usage=0.5)
        counts.append(decision.replicas)
    # 180 s and a reconciliation ahead, of which the five minutes that begin at 20 must be touched.
    assert 15 * (counts.index(math.ceil(100 / 7)) + 1) == 20 * 60 - 180 - 15
    assert set(counts[:60]) == {2}


def test_a_shorter_history_is_not_used() -> None:
    service = BaselineService(Ahpa(inputs(history=history(days(7 * DAY - 10)))), ready=2)
    assert {service.tick(10, rate=10, usage=0.5).replicas for _ in range(20)} == {2}


def test_dissimilar_days_are_not_used() -> None:
    work = [60.0 * (1000.0 if position % 1777 < 300 else 10.0) for position in range(7 * DAY + 10)]
    service = BaselineService(Ahpa(inputs(history=history(work))), ready=2)
    assert {service.tick(10, rate=10, usage=0.5).replicas for _ in range(20)} == {2}


def test_the_reactive_part_rides_above_the_profile() -> None:
    service = BaselineService(Ahpa(inputs(history=history(days(7 * DAY + 10)))), ready=10)
    assert service.tick(200, rate=150, usage=1.0).replicas == 15


def test_a_profile_learns_the_day_that_passes() -> None:
    flat = [600.0] * (7 * DAY + 10)
    service = BaselineService(Ahpa(inputs(history=history(flat))), ready=2)
    assert service.policy._profile == []
    for day in range(7):
        for quarter in range(96):
            service.now = START + (day * 96 + quarter) * 900
            for _ in range(60):
                service.tick(10, rate=90 if quarter < 8 else 10, usage=0.5)
    service.now = START + 7 * 86400
    assert service.tick(10, rate=10, usage=0.5).replicas == math.ceil(90 / 7)
