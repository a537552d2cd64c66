import pytest

from autoscaler.observation import Load
from autoscaler.simulate.baselines.last_value import LastValue, RateEstimate
from autoscaler.simulate.baselines.seasonal_naive import SeasonalNaive
from tests.unit.autoscaler.simulate.baselines.observations import START, BaselineService, history, inputs

DAY = 1440


def estimate(rates: list[float]) -> RateEstimate:
    learned = RateEstimate()
    for position, rate in enumerate(rates):
        learned.see(Load(5.0 * position, 5.0 * position + 5, 0, 5 * rate, 0, 0, 0))
    return learned


def test_an_even_rate_is_expected_to_stay() -> None:
    assert estimate([20.0] * 200).ahead(100) == pytest.approx(20)


def test_a_ramp_is_followed_by_its_slope() -> None:
    ramp = estimate([0.5 * at for at in range(400)])  # 0.1 per second
    assert ramp.ahead(100) - ramp.ahead(0) == pytest.approx(10, rel=0.1)


def test_fall_is_not_anticipated() -> None:
    fall = estimate([200 - 0.5 * at for at in range(400)])
    assert fall.ahead(100) == fall.ahead(0)


def test_noise_is_added_once() -> None:
    noisy = estimate([10.0, 30.0] * 200)
    assert noisy.ahead(0) == pytest.approx(20 + 10, rel=0.1)


def test_the_rate_is_sized_for_a_utilisation() -> None:
    service = BaselineService(LastValue(inputs(least=1)), ready=1)
    assert service.ticks(600, 5, rate=85)[-1] == 10


def test_a_backlog_is_drained_within_a_minute_and_adds_as_much_again_at_most() -> None:
    service = BaselineService(LastValue(inputs(least=1)), ready=10)
    service.ticks(600, 50, rate=85)
    assert (
        service.tick(100 + 1200, rate=85).replicas == 12
    )  # 1200 requests of a second in slots of ten, in 60 s
    assert service.tick(100 + 100_000, rate=85).replicas == 20


def test_fewer_replicas_wait_for_three_minutes() -> None:
    service = BaselineService(LastValue(inputs(least=1)), ready=10)
    service.ticks(600, 50, rate=85)
    counts = service.ticks(600, 5, rate=6)
    assert min(counts[: 180 // 5 - 1]) >= 10
    assert counts[-1] == 1


def test_zero_comes_after_ten_idle_minutes() -> None:
    service = BaselineService(LastValue(inputs()), ready=1)
    service.ticks(60, 5)
    counts = service.ticks(1200, 0)
    assert 5 * (counts.index(0) + 1) == 600


def test_yesterdays_load_is_ordered_a_start_earlier() -> None:
    # Yesterday the rate was 85 from ten minutes after this time of day on.
    work = [60.0 * (85 if 10 <= at % DAY < 70 else 8.5) for at in range(-DAY, 0)]
    service = BaselineService(SeasonalNaive(inputs(least=1, history=history(work))), ready=1)
    counts = []
    while service.now < START + 660:
        counts.append((service.now - START, service.tick(5, rate=8.5).replicas))
    early = [at for at, number in counts if number == 10]
    assert 600 - 75 - 60 <= early[0] <= 600


def test_without_a_yesterday_the_last_value_counts() -> None:
    service = BaselineService(SeasonalNaive(inputs(least=1)), ready=1)
    assert service.ticks(600, 5, rate=85)[-1] == 10
    assert service.tick(5, rate=85).reason == "LastValue"
