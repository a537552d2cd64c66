import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.decision_values import Decision
from autoscaler.observation import Capacity, Load, Observation, Replicas
from autoscaler.policy.backlog import MOST_CATCH_UP
from autoscaler.policy.config import Metric, PolicyConfig, Zero
from autoscaler.policy.sizer import STALE_SECONDS, Sizer

START = 1_700_006_400.0
RATE = 10.0


class SizedService:
    """A target that applies decisions; starts end after a time, or never."""

    def __init__(
        self,
        least: int = 1,
        most: int = 1000,
        ready: int = 1,
        startup: float = 30.0,
        prediction: str = "Enabled",
    ) -> None:
        capacity = Capacity(RATE, 10.0)
        self.sizer = Sizer(
            PolicyConfig(min_replicas=least, max_replicas=most, capacity=capacity, prediction=prediction)
        )
        self.now, self.startup = START, startup
        self.ready = self.desired = ready
        self.starting: list[float] = []

    def tick(self, rate: float | None, *, waiting: float = 0.0, seconds: float = 5.0) -> Decision:
        self.now += seconds
        done = [created for created in self.starting if self.now - created >= self.startup]
        self.starting = [created for created in self.starting if created not in done]
        self.ready += len(done)
        load = None
        if rate is not None:
            length = abs(seconds)
            work = rate * length
            flight = min(rate, RATE * self.ready) + waiting
            load = Load(
                self.now - length,
                self.now,
                work,
                work,
                min(work, RATE * self.ready * length),
                flight if self.ready else 0.0,
                0.0 if self.ready else flight,
                1.0,
            )
        replicas = Replicas(self.desired, self.ready, tuple(self.starting), (self.startup,) * len(done))
        decision = self.sizer.decide(Observation(self.now, replicas, load))
        self.desired = decision.replicas
        self.ready = min(self.ready, self.desired)
        missing = self.desired - self.ready
        self.starting = self.starting[:missing] + [self.now] * (missing - len(self.starting))
        return decision


def counts(world: SizedService, rate: float | None, seconds: float) -> list[int]:
    return [world.tick(rate).replicas for _ in range(int(seconds / 5))]


@settings(max_examples=30)
@given(
    least=st.integers(0, 3),
    more=st.integers(1, 20),
    startup=st.sampled_from((1.0, 30.0, 400.0, math.inf)),
    steps=st.lists(
        st.tuples(
            st.none() | st.sampled_from((0.0, 5.0, 100.0, 1e7)) | st.floats(0, 500),
            st.sampled_from((5.0, 5.0, 5.0, 90.0, 4000.0, -3600.0, 0.0)),
            st.sampled_from((0.0, 0.0, 50.0, 1e6)),
        ),
        max_size=60,
    ),
)
def test_count_is_within_its_bounds_for_any_observation(
    least: int, more: int, startup: float, steps: list[tuple[float | None, float, float]]
) -> None:
    world = SizedService(least, least + more, least, startup)
    for rate, seconds, waiting in steps:
        decision = world.tick(rate, seconds=seconds, waiting=waiting)
        assert least <= decision.replicas <= least + more


@pytest.mark.parametrize("least", [0, 1])
def test_the_count_is_held_when_metrics_are_missing_for_ten_minutes(least: int) -> None:
    world = SizedService(least, ready=6)
    before = counts(world, 45.0, 600)[-1]
    during = counts(world, None, 600)
    assert before >= 5
    assert set(during[int(STALE_SECONDS / 5) + 1 :]) == {during[-1]}
    assert min(during) >= before
    assert world.tick(None).reason == "MetricsMissing"


def test_count_never_reaches_zero_without_a_reading() -> None:
    world = SizedService(0, ready=3)
    assert set(counts(world, None, 600)) == {3}


@pytest.mark.parametrize("idle", [30.0, 600.0, None])
def test_a_replica_that_another_writer_starts_is_kept_for_the_idle_time_when_no_request_has_come(
    idle: float | None,
) -> None:
    world = SizedService(0, ready=0, startup=60.0)
    world.sizer = Sizer(replace(world.sizer.config, zero=Zero(idle=idle)))
    assert set(counts(world, 0.0, 60)) == {0}
    world.desired, world.starting = 1, [world.now]
    assert set(counts(world, 0.0, 60)) == {1}, "it is starting"
    assert world.ready == 1
    if idle is not None:
        assert set(counts(world, 0.0, idle - 5)) == {1}
    assert counts(world, 0.0, 12 * 3600)[-1] == 0


def test_a_start_that_never_ends_is_abandoned_when_no_request_has_come() -> None:
    world = SizedService(0, ready=0, startup=math.inf)
    world.sizer.startup.learn([60.0], [])
    counts(world, 0.0, 60)
    world.desired, world.starting = 1, [world.now]
    assert set(counts(world, 0.0, 115)) == {1}
    assert counts(world, 0.0, 10) == [0, 0]


def test_a_replica_that_never_gets_a_pod_is_abandoned_when_no_request_has_come() -> None:
    world = SizedService(0, ready=0, startup=math.inf)
    world.sizer.startup.learn([60.0], [])
    counts(world, 0.0, 60)
    world.desired = 1
    decided = []
    for _ in range(26):
        world.starting = []  # a quota refuses the Pod
        decided += counts(world, 0.0, 5)
    assert decided[:24] == [1] * 24
    assert decided[-1] == 0


def test_a_count_is_held_for_a_while_when_the_controller_has_just_started() -> None:
    world = SizedService(ready=20)
    assert counts(world, 5.0, 120) == [20] * 24
    assert counts(world, 5.0, 120)[-1] == 1


def test_a_count_is_held_for_a_while_when_the_clock_was_set_back() -> None:
    world = SizedService(ready=1)
    assert counts(world, 190.0, 900)[-1] >= 19
    held = world.desired
    world.tick(5.0, seconds=-3600.0)
    assert counts(world, 5.0, 100) == [held] * 20


def test_waiting_requests_count_with_their_mean_work_when_none_arrives_in_a_reading() -> None:
    """Requests of 1,000 tokens each, of which a hundred wait for the one replica."""
    capacity = Capacity(1000.0, 1.0)
    needs = []
    for last in (1.0, 0.0):
        sizer = Sizer(PolicyConfig(1, 100, capacity=capacity, prediction="Disabled"))
        for i in range(1, 13):
            arrivals = 1.0 if i < 12 else last
            now = START + 5 * i
            queued = Load(now - 5, now, arrivals, 1000 * arrivals, 1.0, 101.0 if i == 12 else 1.0, 0.0)
            decision = sizer.decide(Observation(now, Replicas(1, 1), queued))
        needs.append((decision.needed, decision.reason))
    assert needs == [(3, "Backlog")] * 2


@pytest.mark.parametrize("waiting", [0.0, 1e5])
def test_the_count_does_not_wind_up_when_replicas_never_become_ready(waiting: float) -> None:
    world = SizedService(ready=2, startup=math.inf)
    decisions = [world.tick(60.0, waiting=waiting + 20.0 * i) for i in range(720)]
    for decision in decisions:
        assert decision.forecast is not None
        load = math.ceil(max(decision.forecast.upper, decision.rate) / RATE)
        assert decision.needed <= math.ceil(load * (1 + MOST_CATCH_UP)) + 1
    late = [decision.replicas for decision in decisions[360:]]
    assert max(late) == late[0], "a longer wait asks for no more"
    assert min(late) >= 6


def test_the_count_changes_seldom_when_the_load_is_constant_with_noise() -> None:
    world, noise = SizedService(ready=10), np.random.default_rng(5)
    replicas = [world.tick(float(noise.poisson(425)) / 5).replicas for _ in range(1440)][720:]
    assert sum(a != b for a, b in pairwise(replicas)) <= 30
    assert min(replicas) >= 8
    assert max(replicas) <= 14


def test_the_need_is_reached_within_two_ticks_when_the_load_is_tenfold_in_one_step() -> None:
    world = SizedService(ready=3)
    counts(world, 18.0, 1800)
    replicas = counts(world, 180.0, 300)
    assert replicas[1] >= 0.7 * 18, "a step is no reading alone: the rate that serves it in time"
    assert max(replicas[3:]) >= 18
    assert max(replicas) <= 2 * 18


def test_fewer_replicas_carry_the_same_noise_when_the_load_is_that_of_a_few() -> None:
    spare = []
    for replicas in (0.6, 30):
        world, rng = SizedService(), np.random.default_rng(4)
        loads = replicas * RATE * np.exp(rng.normal(0, 0.5, 2000))
        decisions = [world.tick(load) for load in loads]
        spare.append(np.mean([d.forecast.upper / d.forecast.median for d in decisions[1000:] if d.forecast]))
    assert 1 < spare[0] < 0.8 * spare[1], "an additional replica is a larger share of fewer replicas"


def test_rise_is_at_least_a_tenth_and_at_most_two_beyond_the_need() -> None:
    world = SizedService(ready=20)
    counts(world, 180.0, 3600)
    replicas = counts(world, 180.0, 5)
    for rate in range(180, 400):
        replicas += counts(world, float(rate), 30)
    rises = [after - before for before, after in pairwise(replicas) if after > before]
    assert len(rises) >= 5
    assert min(rises) >= 2, "twenty replicas and more: a tenth of them, of which two are enough"
    assert max(replicas) <= 1.25 * 400 / RATE


@pytest.mark.parametrize(("after", "falls"), [(170.0, False), (120.0, True)])
def test_a_small_fall_waits_for_twenty_minutes_when_a_large_one_is_answered_within_five(
    after: float,
    falls: bool,  # noqa: FBT001 a parameter of the test
) -> None:
    world = SizedService(ready=20)
    before = counts(world, 190.0, 4 * 3600)[-1]
    soon = counts(world, after, 300)[-1]
    later = counts(world, after, 1200)[-1]
    assert (soon < before) is falls
    assert later < before


def test_a_need_beyond_the_maximum_is_forgotten_when_load_has_fallen() -> None:
    world = SizedService(most=10, ready=5)
    assert counts(world, 300.0, 600)[-1] == 10
    assert counts(world, 20.0, 900)[-1] <= 4, "a count that may not rise renews no hold"


def test_replicas_stay_when_the_clock_is_set_back_and_forth_an_hour() -> None:
    world = SizedService(ready=6)
    counts(world, 45.0, 900)
    for jump in (-3600.0, 3600.0):
        world.now += jump
        assert min(counts(world, 45.0, 600)) >= 5


def test_last_replica_is_removed_after_a_long_silence_and_returns_with_a_request() -> None:
    world = SizedService(0, ready=1)
    counts(world, 5.0, 300)
    assert world.tick(0.0).replicas == 1
    assert counts(world, 0.0, 8 * 3600)[-1] == 0
    assert world.tick(1.0).replicas >= 1


def test_decisions_are_the_same_when_restored_from_json() -> None:
    world, noise = SizedService(ready=6), np.random.default_rng(5)
    for _ in range(720):
        world.tick(float(noise.poisson(225)) / 5)
    restored = SizedService(ready=world.ready)
    restored.sizer.restore(json.loads(json.dumps(world.sizer.state())))
    restored.now = world.now
    rates = [float(noise.poisson(225)) / 5 for _ in range(120)]
    after = [(world.tick(rate).needed, restored.tick(rate).needed) for rate in rates]
    assert all(abs(a - b) <= 1 for a, b in after[60:])
    assert restored.sizer.startup.state() == world.sizer.startup.state()


def test_the_reason_at_the_maximum_is_what_was_needed_when_the_load_has_gone() -> None:
    world = SizedService(most=3)
    for _ in range(24):
        decision = world.tick(RATE * 8)
    assert decision.reason == "MaxReplicas"
    assert decision.message.endswith("are needed; the maximum is 3")
    while decision.needed > 3:
        decision = world.tick(RATE)
    assert (decision.replicas, decision.reason) == (3, "MaxReplicas")
    assert decision.message.endswith("needed within the stabilization window; the maximum is 3")
    assert decision.message.startswith(f"{decision.needed} needed now")


@pytest.mark.parametrize(
    ("replicas", "held", "reason"), [(Replicas(0, 0), 1.0, "Woken"), (Replicas(1, 1), 0.0, "Load")]
)
def test_requests_are_the_reason_when_the_metrics_need_no_replica_and_the_capacity_is_unknown(
    replicas: Replicas, held: float, reason: str
) -> None:
    metrics = (Metric("TokenQueueDepth", "TokenQueueDepth", 600.0),)
    sizer = Sizer(PolicyConfig(min_replicas=0, max_replicas=3, metrics=metrics))
    load = Load(START - 5, START, 1, 0, 0, in_flight=1 - held, held=held)
    decision = sizer.decide(Observation(START, replicas, load, {"TokenQueueDepth": 0.0}))
    assert (decision.replicas, decision.needed, decision.reason) == (1, 1, reason)
