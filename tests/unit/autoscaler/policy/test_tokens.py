"""TokensPerSecond: arriving tokens over the capacity of one replica."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.observation import Capacity, EngineLoad, Load, Observation, Replicas
from autoscaler.policy.config import Metric, PolicyConfig
from autoscaler.policy.metric_needs import MetricSizer
from autoscaler.policy.sizer import Sizer
from autoscaler.policy.tokens import TokenRates

START = 1_700_006_400.0
BY_CAPACITY = Metric("TokensPerSecond", "TokensPerSecond", None)
BY_TARGET = Metric("TokensPerSecond", "TokensPerSecond", 500.0)
TWO = Replicas(2, 2)


def load(finished: float) -> Load:
    return Load(START, START + 10, finished, finished, finished, 4.0, 0.0)


def saturated(tokens: float = 2000.0) -> EngineLoad:
    return EngineLoad(tokens, 2, waiting=20.0, cache=0.95)


def test_capacity_in_tokens_is_learned_from_a_saturated_engine() -> None:
    rates = TokenRates([BY_CAPACITY])
    assert rates.metric_needs(saturated(), 0.0, TWO)[0].needed is None
    for _ in range(10):
        rates.learn(saturated(), load(20.0))
    assert rates.capacity == pytest.approx(1000.0)
    assert rates.tokens_per_request == pytest.approx(1000.0)
    (metric_need,) = rates.metric_needs(saturated(), 5.0, TWO)
    assert metric_need.needed == 5, (
        "5 requests per second of 1,000 tokens, of which two full replicas do 2,000"
    )


def test_capacity_in_tokens_is_that_of_the_profile_until_a_saturated_replica_does_less() -> None:
    rates = TokenRates([BY_CAPACITY], Capacity(2.0, 4.0, tokens=400.0))
    for _ in range(3):
        rates.learn(EngineLoad(1800.0, 2), load(1.8))
    assert rates.capacity == 400.0, "a faster replica may miss the latency target"
    (metric_need,) = rates.metric_needs(EngineLoad(1800.0, 2), 0.0, TWO)
    assert (metric_need.needed, metric_need.message) == (
        5,
        "1.8e+03 tokens/s at 400 each, by the CapacityProfile",
    )
    for _ in range(30):
        rates.learn(saturated(600.0), load(0.6))
    assert rates.capacity == pytest.approx(300.0, rel=0.01)
    (metric_need,) = rates.metric_needs(EngineLoad(900.0, 2), 0.0, TWO)
    assert (metric_need.needed, metric_need.message) == (3, "900 tokens/s at 300 each, as learned")


def test_saturated_replica_does_not_raise_the_capacity_of_the_profile() -> None:
    rates = TokenRates([BY_CAPACITY], Capacity(2.0, 4.0, tokens=400.0))
    for _ in range(10):
        rates.learn(saturated(), load(20.0))
    assert rates.capacity == 400.0


def test_capacity_in_tokens_is_learned_when_the_profile_has_no_tokens() -> None:
    rates = TokenRates([BY_CAPACITY], Capacity(2.0, 4.0))
    assert rates.capacity is None
    for _ in range(10):
        rates.learn(saturated(), load(20.0))
    assert rates.capacity == pytest.approx(1000.0)


def test_target_counts_when_a_profile_has_tokens() -> None:
    rates = TokenRates([BY_TARGET], Capacity(2.0, 4.0, tokens=400.0))
    (metric_need,) = rates.metric_needs(EngineLoad(1200.0, 2), 0.0, TWO)
    assert (metric_need.needed, metric_need.message) == (3, "1.2e+03 tokens/s at 500 each")


def test_short_wait_is_not_saturation() -> None:
    rates = TokenRates([BY_CAPACITY])
    rates.learn(EngineLoad(2000.0, 2), load(2.0))
    rates.learn(EngineLoad(100.0, 2, waiting=20.0), load(0.1))
    rates.learn(EngineLoad(1800.0, 2), load(1.8))
    assert rates.capacity == pytest.approx(1250.0)


def test_capacity_is_assumed_a_quarter_beyond_the_highest_rate() -> None:
    rates = TokenRates([BY_CAPACITY])
    for tokens in (400.0, 800.0, 200.0):
        rates.learn(EngineLoad(tokens, 2, cache=0.3), None)
    assert rates.capacity == pytest.approx(500.0)


def test_rate_of_one_reading_does_not_stay_in_the_capacity_when_it_is_absurd() -> None:
    rates = TokenRates([BY_CAPACITY])
    rates.learn(EngineLoad(200_000.0, 2), None)
    for _ in range(2):
        rates.learn(saturated(), None)
    assert rates.capacity == pytest.approx(1000.0), "the first saturated readings replace the assumed rate"
    rates.learn(EngineLoad(1600.0, 2), None)
    rates.learn(EngineLoad(200_000.0, 2), None)
    rates.learn(EngineLoad(1600.0, 2), None)
    assert rates.capacity == pytest.approx(1000.0)
    for _ in range(3):
        rates.learn(EngineLoad(200_000.0, 2, read_at=7.0), None)
    assert rates.capacity == pytest.approx(1000.0), "three decisions on one reading are no three readings"
    for _ in range(2):
        rates.learn(EngineLoad(4000.0, 2), None)
    assert rates.capacity == pytest.approx(2500.0), "two readings in a row prove a higher rate"


def test_target_is_the_rate_of_one_replica_and_arrivals_count_when_engines_are_full() -> None:
    rates = TokenRates([BY_TARGET])
    assert rates.metric_needs(EngineLoad(1200.0, 2), 0.0, TWO)[0].needed == 3
    for _ in range(5):
        rates.learn(EngineLoad(1000.0, 2, waiting=50.0), load(100.0))  # 100 tokens each
    assert rates.metric_needs(EngineLoad(1000.0, 2, waiting=50.0), 30.0, TWO)[0].needed == 6


def test_tokens_of_a_request_include_those_of_readings_in_which_no_answer_ends() -> None:
    """An answer of 10,000 tokens takes two readings, at the end of which it counts."""
    rates = TokenRates([BY_TARGET])
    for i in range(60):
        rates.learn(EngineLoad(1000.0, 1, waiting=5.0), load(float(i % 2)))
    assert rates.tokens_per_request == pytest.approx(20_000.0, rel=0.02)


def test_tokens_of_a_request_are_known_when_the_target_was_idle_for_an_hour() -> None:
    rates = TokenRates([BY_TARGET])
    for _ in range(20):
        rates.learn(EngineLoad(1000.0, 1), load(10.0))
    for _ in range(360):
        rates.learn(EngineLoad(0.0, 1), load(0.0))
    assert rates.tokens_per_request == pytest.approx(1000.0)


def test_one_more_replica_is_needed_when_uncounted_requests_wait() -> None:
    rates = TokenRates([BY_CAPACITY])
    for _ in range(5):
        rates.learn(saturated(), None)
    assert rates.metric_needs(saturated(), 0.0, TWO)[0].needed == 3
    starting = Replicas(3, 2, starting=(START,))
    assert rates.metric_needs(saturated(), 0.0, starting)[0].needed == 2, "one is on its way: no wind-up"


ANY = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.builds(EngineLoad, ANY, st.integers(-1, 5), ANY, ANY), max_size=20), ANY, ANY)
def test_capacity_and_need_are_finite_for_any_page(
    readings: list[EngineLoad], tokens: float, rate: float
) -> None:
    rates = TokenRates([BY_CAPACITY])
    for reading in readings:
        rates.learn(reading, load(10.0))
    assert rates.capacity is None or 0 < rates.capacity < math.inf
    (metric_need,) = rates.metric_needs(
        EngineLoad(tokens, 2), min(max(rate, 0.0), 1e9) if rate == rate else 0.0, TWO
    )
    assert metric_need.needed is None or metric_need.needed >= 0
    restored = TokenRates([BY_CAPACITY])
    restored.restore(json.loads(json.dumps(rates.state())))
    assert restored.capacity == rates.capacity


def test_metrics_of_a_spec_take_the_tokens_of_a_replica_from_the_profile() -> None:
    profile = Capacity(100.0, 10.0, tokens=500.0)
    sizer = MetricSizer(PolicyConfig(max_replicas=20, metrics=(BY_CAPACITY,), capacity=profile))
    observation = Observation(START, TWO, None, engines=EngineLoad(4000.0, 2))
    (metric_need,) = sizer.by_target_value(observation, 0.0, 0.0)
    assert metric_need.needed == 8


@pytest.mark.parametrize("tokens", [0.0, -400.0, 1e-300, 1e10, math.inf, math.nan])
def test_tokens_of_a_profile_are_ignored_when_they_are_implausible(tokens: float) -> None:
    rates = TokenRates([BY_CAPACITY], Capacity(2.0, 4.0, tokens=tokens))
    assert rates.metric_needs(EngineLoad(1200.0, 2), 0.0, TWO)[0].needed is None


def test_sizer_counts_tokens_beside_requests_and_holds_without_pages() -> None:
    config = PolicyConfig(max_replicas=20, metrics=(BY_TARGET,), capacity=Capacity(100.0, 10.0))
    sizer, now = Sizer(config), START
    for _ in range(30):
        now += 10
        reading = Load(now - 10, now, 200.0, 200.0, 200.0, 4.0, 0.0)
        decision = sizer.decide(Observation(now, TWO, reading, engines=EngineLoad(4000.0, 2)))
    assert decision.replicas >= 8, "20 requests per second of 200 tokens at 500 tokens per second"
    assert decision.metric == "TokensPerSecond"
    for _ in range(60):
        now += 10
        reading = Load(now - 10, now, 2.0, 2.0, 2.0, 0.1, 0.0)
        decision = sizer.decide(Observation(now, Replicas(9, 9), reading))
    assert decision.replicas == 9
