"""A latency target is met by sizing, and never by a queue ratio."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.decision_values import Decision
from autoscaler.observation import Capacity, Load, Observation, Percentile, Replicas
from autoscaler.policy.config import Metric, PolicyConfig
from autoscaler.policy.latency import LatencyTarget, LatencyTargets
from autoscaler.policy.sizer import Sizer

START = 1_700_006_400.0
TARGET = 1.0
METRIC = Metric("Latency", "Latency", TARGET, 95.0)
MOST = 100


class ServiceWithLatency:
    """Replicas of 20 requests per second; their percentile grows with the load as in M/M/1."""

    def __init__(self, *, unloaded: float = 0.1, startup: float = 30.0, ready: int = 2) -> None:
        self.sizer = Sizer(PolicyConfig(max_replicas=MOST, metrics=(METRIC,)))
        self.now, self.unloaded, self.startup = START, unloaded, startup
        self.ready = self.desired = ready
        self.starting: list[float] = []
        self.seconds = 0.0

    def tick(self, rate: float, percentile: Percentile | str | None = "measured") -> Decision:
        self.now += 5.0
        done = [created for created in self.starting if self.now - created >= self.startup]
        self.starting = self.starting[len(done) :]
        self.ready += len(done)
        share = min(rate / self.ready / 20.0, 0.995)
        self.seconds = self.unloaded / (1 - share)
        served = min(rate, 20.0 * self.ready) * 5
        flight = self.ready * share / (1 - share)
        if self.unloaded > TARGET:  # the model is slow by itself, and works on many requests at once
            flight = rate * self.unloaded
        load = Load(self.now - 5, self.now, rate * 5, rate * 5, served, flight, 0.0, self.seconds / 3)
        percentiles = {"Latency": Percentile(self.seconds, 100.0)}
        if percentile != "measured":
            assert not isinstance(percentile, str)
            percentiles = {} if percentile is None else {"Latency": percentile}
        replicas = Replicas(self.desired, self.ready, tuple(self.starting), (self.startup,) * len(done))
        decision = self.sizer.decide(Observation(self.now, replicas, load, percentiles=percentiles))
        self.desired = decision.replicas
        self.ready = min(self.ready, self.desired)
        missing = self.desired - self.ready
        self.starting = self.starting[:missing] + [self.now] * (missing - len(self.starting))
        return decision

    def run(self, rate: float, seconds: float) -> list[Decision]:
        return [self.tick(rate) for _ in range(int(seconds / 5))]


@pytest.mark.parametrize("rate", [30.0, 150.0])
def test_the_percentile_meets_its_target_when_replicas_can(rate: float) -> None:
    world = ServiceWithLatency()
    world.run(rate, 3600)
    late, counts = 0, set()
    for _ in range(720):
        counts.add(world.tick(rate).replicas)
        late += world.seconds > TARGET
    assert late <= 36, "a twentieth of an hour at most, while the limit is looked for"
    assert max(counts) <= 2 * math.ceil(rate / 20)
    assert max(counts) - min(counts) <= max(2, 0.4 * max(counts))


def test_count_is_held_and_reported_when_the_model_is_slower_than_the_target() -> None:
    world = ServiceWithLatency(unloaded=3.0, ready=4)
    load = max(decision.replicas for decision in world.run(30.0, 150))
    decisions = world.run(30.0, 3 * 3600)
    assert max(decision.replicas for decision in decisions) <= 3 * load, "one try, and no wind-up"
    last = {metric_need.metric: metric_need for metric_need in decisions[-1].metric_needs}["Latency"]
    assert last.needed is None
    assert "more replicas do not make them faster" in last.message
    assert len({decision.replicas for decision in decisions[-720:]}) == 1


def test_count_is_held_at_once_when_a_slow_model_has_few_requests_in_flight() -> None:
    target = LatencyTarget(METRIC, None)
    target.see(Percentile(3.0, 50.0))
    target.learn(0.1, 0.3, START)
    metric_need = target.metric_need(1.0, Replicas(4, 4))
    assert metric_need.needed is None
    assert "the count is held" in metric_need.message
    assert target.capacity is None, "an answer that waited for none says nothing of the capacity"


def test_the_count_does_not_wind_up_when_new_replicas_never_become_ready() -> None:
    world = ServiceWithLatency(startup=math.inf, ready=3)
    decisions = world.run(58.0, 4 * 3600)
    assert world.seconds > TARGET
    late = [decision.replicas for decision in decisions[720:]]
    assert max(late) <= 3 * 3
    assert late[-1] <= late[0], "a longer wait asks for no more"


def test_replicas_are_fewer_again_when_an_outage_of_an_hour_is_over() -> None:
    targets, now, count, settled = LatencyTargets((METRIC,), None), START, 4, START
    counts: list[int] = []
    for tick in range(4 * 720):
        now += 5.0
        unloaded = 5.0 if 720 <= tick < 1440 else 0.1
        share = min(50.0 / count / 20.0, 0.995)
        seconds = unloaded / (1 - share)
        targets.take(Load(now - 5, now, 250.0, 250.0, 250.0, 50.0 * seconds, 0.0), count)
        targets.learn({"Latency": Percentile(seconds, 100.0)}, now)
        (metric_need,) = targets.metric_needs(50.0, Replicas(count, count))
        if metric_need.needed is not None and now - settled >= 120.0:
            count, settled = max(metric_need.needed, 3), now
        counts.append(count)
    before = counts[719]
    assert max(counts[720:1440]) <= 4 * before
    assert counts[-1] <= before + 1


@settings(max_examples=40)
@given(
    readings=st.lists(
        st.tuples(
            st.floats(0.01, 1e4),
            st.floats(0.0, 400.0),
            st.floats(0.0, 1e4),
            st.sampled_from((5.0, 20.0, 900.0, -3600.0)),
        ),
        max_size=40,
    ),
    rates=st.tuples(st.floats(0, 1e5), st.floats(0, 1e5)),
)
def test_more_load_never_needs_fewer_replicas_after_any_learning(
    readings: list[tuple[float, float, float, float]], rates: tuple[float, float]
) -> None:
    target, now = LatencyTarget(METRIC, None), START
    for load, seconds, flight, passed in readings:
        now += passed
        target.see(Percentile(seconds, 100.0))
        target.learn(load, flight, now)
        capacity = target.capacity
        assert capacity is None or 0 < capacity < math.inf
    less, more = (target.metric_need(rate, Replicas(3, 3)).needed for rate in sorted(rates))
    assert (less is None) == (more is None)
    assert less is None or more is None or less <= more
    restored = LatencyTarget(METRIC, None)
    restored.restore(json.loads(json.dumps(target.state())))
    assert restored.capacity == target.capacity


@settings(max_examples=20)
@given(
    percentile=st.none() | st.builds(Percentile, st.sampled_from((math.nan, math.inf, -1.0)), st.just(100.0)),
    rate=st.floats(0.0, 30.0),
)
def test_no_replica_is_removed_when_the_percentile_is_missing_or_absurd(
    percentile: Percentile | None, rate: float
) -> None:
    world = ServiceWithLatency()
    world.run(100.0, 900)
    before = world.desired
    assert before >= 5
    assert min(world.tick(rate, percentile).replicas for _ in range(240)) >= before


def test_capacity_profile_is_used_until_the_percentile_contradicts_it() -> None:
    target = LatencyTargets((METRIC,), Capacity(10.0, 4.0)).targets[0]
    assert target.capacity == 10.0
    for step in range(20):
        target.see(Percentile(2.0, 100.0))
        target.learn(6.0, 8.0, START + 20 * step)
    assert target.capacity is not None
    assert target.capacity < 6.0


def test_latency_is_not_learned_while_ready_replicas_change() -> None:
    targets = LatencyTargets((METRIC,), None)
    for step in range(60):
        end = START + 5 * step
        targets.take(Load(end - 5, end, 50.0, 50.0, 50.0, 40.0, 0.0), 2 + step % 2)
        targets.learn({"Latency": Percentile(9.0, 100.0)}, end)
    assert targets.targets[0].capacity is None


def test_few_answers_do_not_hold_the_count() -> None:
    target = LatencyTarget(METRIC, None)
    target.see(Percentile(None, 3.0))
    metric_need = target.metric_need(0.1, Replicas(9, 9))
    assert metric_need.needed == 0
    assert "too few answers" in metric_need.message
