import pytest

from autoscaler.simulate.baselines.dynamo import Dynamo, forecast
from tests.unit.autoscaler.simulate.baselines.observations import BaselineService, history, inputs


def test_few_values_are_followed_by_the_last() -> None:
    assert forecast([]) == 0
    assert forecast([1, 2, 3, 9]) == 9


def test_a_trend_goes_on() -> None:
    assert forecast([10, 20, 30, 40, 50]) == pytest.approx(50 + 0.99 * 10)


def test_a_change_that_turns_is_taken_back() -> None:
    assert forecast([10, 20, 10, 20, 10, 20]) == pytest.approx(20 - 0.99 * 10)


def test_a_constant_stays() -> None:
    assert forecast([7.0] * 20) == 7


def test_a_forecast_is_not_negative() -> None:
    assert forecast([40, 30, 20, 10, 1]) == 0


def test_the_floor_is_the_forecast_over_the_throughput_of_three_minutes() -> None:
    service = BaselineService(Dynamo(inputs()), ready=20)
    assert [service.ticks(180, 190, rate=at)[-1] for at in (195, 211)] == [20, 22]


def test_a_replica_is_added_where_more_is_in_flight_than_fits() -> None:
    service = BaselineService(Dynamo(inputs()), ready=2)
    assert [service.ticks(5, present, rate=1)[0] for present in (19, 20, 21, 31)] == [2, 2, 3, 4]


def test_a_replica_is_removed_below_six_tenths_but_not_below_the_floor() -> None:
    service = BaselineService(Dynamo(inputs()), ready=5)
    service.ticks(180, 40, rate=35)
    assert [service.ticks(5, present, rate=35)[0] for present in (31, 29, 10, 10)] == [5, 4, 4, 4]


def test_nothing_changes_while_replicas_start() -> None:
    service = BaselineService(Dynamo(inputs()), ready=1)
    assert [service.tick(100, rate=100).replicas for _ in range(60)] == [2] * 60


def test_the_history_is_known_in_its_own_steps() -> None:
    work = [60.0 * rate for rate in (10, 10, 10, 20, 20, 20, 30, 30, 30, 40, 40, 40)]
    service = BaselineService(Dynamo(inputs(history=history(work))), ready=1)
    assert service.ticks(180, 9, rate=50)[-1] == 6
