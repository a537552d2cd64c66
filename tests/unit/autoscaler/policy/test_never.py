"""Properties of the policy for any input: what its decisions never do."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoscaler.decision_values import Decision
from autoscaler.observation import Capacity, EngineLoad, Load, Observation, Percentile, Replicas
from autoscaler.policy.backlog import LEAST_CATCH_UP, MOST_CATCH_UP, TOLERANCE
from autoscaler.policy.config import Metric, Pace, PolicyConfig, Zero
from autoscaler.policy.sizer import Sizer
from autoscaler.state.target_state import TargetState
from tests.unit.autoscaler.policy.test_sizer import RATE, START, SizedService, counts

ABSURD = (math.nan, math.inf, -math.inf, -1.0, -1e300, 1e300)
FIGURES = ("start", "end", "arrivals", "work", "finished", "in_flight", "held", "latency", "errors")
KNOWN = Capacity(RATE, 10.0)
rates = st.sampled_from((0.0, 0.3, 5.0, 44.0, 100.0)) | st.floats(0.0, 500.0)


def reading(now: float, rate: float, **figures: float) -> Load:
    work = 5 * rate
    return replace(Load(now - 5, now, work, work, work, rate, 0.0, 1.0), **figures)


class ReadyTarget:
    """A target whose replicas are ready at once, sized by a TargetState."""

    def __init__(self, config: PolicyConfig, replicas: int) -> None:
        self.scaled = TargetState(config)
        self.now, self.replicas = START, replicas

    def decide(self, load: Load | None, started: tuple[float, ...] = (), **more: Any) -> Decision:
        replicas = Replicas(self.replicas, self.replicas, started=started)
        decision = self.scaled.decide(Observation(self.now, replicas, load, **more))
        self.replicas = decision.replicas
        return decision

    def tick(self, rate: float | None, **figures: float) -> Decision:
        self.now += 5.0
        return self.decide(None if rate is None else reading(self.now, rate, **figures))


numbers = st.sampled_from((*ABSURD, 0.0, 1.0, 1e6)) | st.floats()
metrics = (
    Metric("QPS", "QPS", 1e-6),
    Metric("Concurrency", "Concurrency", 2.0),
    Metric("Latency", "Latency", 0.5),
    Metric("TokenQueueDepth", "TokenQueueDepth", 100.0),
    Metric("TokensPerSecond", "TokensPerSecond", None),
    Metric("Utilization", "Utilization", 80.0, resource="cpu"),
    Metric("PromQL/jobs", "PromQL", 1e-6),
)
configs = st.builds(
    lambda least, more, capacity, drawn, pace, prediction, idle: PolicyConfig(
        least,
        least + more,
        metrics=tuple(drawn),
        up=pace,
        down=pace,
        zero=Zero(idle),
        prediction=prediction,
        capacity=capacity,
    ),
    st.integers(0, 3),
    st.integers(1, 20),
    st.sampled_from((None, KNOWN)),
    st.lists(st.sampled_from(metrics), max_size=3, unique=True),
    st.sampled_from((Pace(), Pace(1), Pace(None, 10, 0.0))),
    st.sampled_from(("Enabled", "Observe", "Disabled")),
    st.sampled_from((None, 0.0, 60.0)),
)


@settings(max_examples=60)
@given(
    config=configs,
    figures=st.lists(st.lists(numbers, min_size=9, max_size=9), max_size=25),
    steps=st.lists(
        st.tuples(st.sampled_from((5.0, 5.0, 60.0, -3600.0)), st.integers(0, 40)), min_size=25, max_size=25
    ),
)
def test_count_is_within_its_bounds_for_any_figures(
    config: PolicyConfig, figures: list[list[float]], steps: list[tuple[float, int]]
) -> None:
    target = ReadyTarget(config, config.min_replicas)
    for (step, replicas), values in zip(steps, figures, strict=False):
        target.now += step
        target.replicas = replicas  # another writer
        decisions = [
            None,
            reading(target.now, 20.0, **dict(zip(FIGURES, values, strict=True))),
            reading(target.now, 20.0),
        ]
        for load in decisions:
            decision = target.decide(
                load,
                gauges={metric.name: values[0] for metric in config.metrics},
                percentiles={"Latency": Percentile(values[1], values[2])},
                engines=EngineLoad(*values[3:4], 2, *values[4:6]),
            )
            assert config.min_replicas <= decision.replicas <= config.max_replicas
            assert 0 <= decision.needed < 2**63, "a status cannot have more"
    json.dumps(target.scaled.learned_state(), allow_nan=False)


@settings(max_examples=25)
@given(
    capacity=st.sampled_from((None, KNOWN)),
    faults=st.lists(
        st.none()
        | st.dictionaries(st.sampled_from(FIGURES), st.sampled_from(ABSURD), min_size=1, max_size=3),
        min_size=1,
        max_size=4,
    ),
    rate=st.sampled_from((0.0, 1.0, 50.0)),
)
def test_no_replica_is_removed_when_readings_are_missing_or_absurd_for_ten_minutes(
    capacity: Capacity | None, faults: list[dict[str, float] | None], rate: float
) -> None:
    target = ReadyTarget(PolicyConfig(0, 100, capacity=capacity), 6)
    for _ in range(60):
        target.tick(45.0)
    before = target.replicas
    assert before >= 5
    for tick in range(120):
        fault = faults[tick % len(faults)]
        decision = target.tick(None) if fault is None else target.tick(rate, **fault)
        assert before <= decision.replicas <= before + 3
    assert decision.reason == "MetricsMissing"
    assert all(before - 1 <= target.tick(45.0).replicas <= before + 3 for _ in range(60)), (
        "nothing was learned of them"
    )


@settings(max_examples=25)
@given(
    rate=st.floats(5.0, 500.0),
    ready=st.integers(0, 5),
    grows=st.sampled_from((0.0, 20.0, 1e4)),
    quiet=st.floats(0.0, 1.0),
)
def test_count_does_not_wind_up_at_any_load_when_no_replica_becomes_ready(
    rate: float, ready: int, grows: float, quiet: float
) -> None:
    world = SizedService(0, ready=ready, startup=math.inf)
    counts(world, rate * quiet, 300)
    decisions = [world.tick(rate, waiting=grows * i) for i in range(240)]
    most = max(max(d.forecast.upper, d.rate) for d in decisions[60:] if d.forecast is not None) / RATE
    late = [decision.replicas for decision in decisions[180:]]
    assert max(late) <= math.ceil(most + max(MOST_CATCH_UP * most, LEAST_CATCH_UP)) + 1
    assert max(late) <= late[0] + 1, "a longer wait asks for no more"


@settings(max_examples=12)
@given(
    rate=st.floats(0.0, 900.0),
    ready=st.integers(0, 120),
    startup=st.sampled_from((1.0, 30.0, 120.0)),
    least=st.integers(0, 2),
)
def test_count_does_not_rise_after_ten_minutes_of_constant_load(
    rate: float, ready: int, startup: float, least: int
) -> None:
    """What it was wrong about at first is unlearned over the hours: until then it may go down, and nothing
    oscillates."""
    world = SizedService(least, ready=max(ready, least), startup=startup)
    counts(world, rate, 600)
    settled = counts(world, rate, 3600)
    assert settled == sorted(settled, reverse=True)
    assert math.ceil(rate / RATE - TOLERANCE) <= settled[-1] <= max(1.5 * rate / RATE + 2, least)


@settings(max_examples=20)
@given(
    rate=st.floats(1.0, 400.0),
    fallen=st.sampled_from((1.0, 0.5, 0.1)),
    jump=st.sampled_from((3600.0, -3600.0, 30_000.0)),
    least=st.integers(0, 1),
)
def test_no_replica_is_removed_at_once_when_the_clock_is_set(
    rate: float, fallen: float, jump: float, least: int
) -> None:
    worlds = [SizedService(least, ready=math.ceil(rate / RATE)) for _ in range(2)]
    for world in worlds:
        counts(world, rate, 300)
        counts(world, rate * fallen, 30)
    worlds[1].now += jump
    for _ in range(12):
        unset, was_set = (world.tick(rate * fallen).replicas for world in worlds)
        assert was_set >= unset


@settings(max_examples=25)
@given(
    history=st.lists(st.tuples(rates, st.integers(1, 60)), min_size=1, max_size=6),
    less=rates,
    more=rates,
    ready=st.integers(0, 10),
    prediction=st.sampled_from(("Enabled", "Disabled")),
)
@example(history=[(0.0, 20), (44.0, 29), (246.0, 12)], less=44.0, more=64.0, ready=0, prediction="Enabled")
def test_more_load_never_gets_fewer_replicas(
    history: Sequence[tuple[float, int]], less: float, more: float, ready: int, prediction: str
) -> None:
    """Two readings cannot teach the forecast a larger error. Later the smaller load, whose fall was larger,
    may need more for a while; its replicas, which are held for minutes, stay fewer."""
    less, more = min(less, more), max(less, more)
    worlds = [SizedService(0, ready=ready, prediction=prediction) for _ in range(2)]
    for rate, ticks in history:
        for world in worlds:
            for _ in range(ticks):
                world.tick(rate)
    for reading in range(6):
        low, high = worlds[0].tick(less), worlds[1].tick(more)
        assert reading >= 2 or low.needed <= high.needed
        assert low.replicas <= high.replicas


@settings(max_examples=40)
@given(
    idle=st.sampled_from((None, 20.0, 300.0)),
    steps=st.lists(
        st.tuples(
            st.sampled_from((0.0, 0.0, 0.0, 3.0)),
            st.integers(1, 80),
            st.sampled_from((0.0, 0.0, 3600.0, -3600.0)),
        ),
        min_size=1,
        max_size=8,
    ),
)
def test_scale_to_zero_waits_for_idle_seconds(
    idle: float | None, steps: list[tuple[float, int, float]]
) -> None:
    target = ReadyTarget(PolicyConfig(0, 5, zero=Zero(idle), capacity=KNOWN), 1)
    silent, shortest = 0.0, 60.0 if idle is None else idle
    target.tick(3.0)
    for rate, ticks, jump in steps:
        target.now += jump
        for _ in range(ticks):
            before = target.replicas
            decision = target.tick(rate)
            silent = 0.0 if rate else silent + 5.0
            if decision.replicas == 0 and before > 0:
                assert silent >= shortest
            assert decision.replicas or not rate


@settings(max_examples=40)
@given(
    config=configs,
    history=st.lists(st.tuples(st.none() | rates, st.integers(1, 40)), max_size=4),
    held=st.integers(1, 1000),
)
def test_held_request_at_zero_gets_a_replica(
    config: PolicyConfig,
    history: list[tuple[float | None, int]],
    held: int,
) -> None:
    """Read by the tick, and as an activator says it between two: then nothing has arrived."""
    target = ReadyTarget(replace(config, min_replicas=0), 0)
    for rate, ticks in history:
        for _ in range(ticks):
            target.tick(rate)
    for seconds, arrived, age in ((0.001, 0, 0.0), (5.0, held, 0.0), (5.0, 0, 0.0), (5.0, 0, 90.0)):
        target.now += 5.0
        target.replicas, end = 0, target.now - age
        assert target.decide(Load(end - seconds, end, arrived, arrived, 0, 0, held)).replicas >= 1


@settings(max_examples=10)
@given(
    history=st.lists(st.tuples(rates, st.integers(1, 120)), min_size=1, max_size=5),
    last=st.sampled_from((0.3, 12.0, 44.0, 180.0)),
    capacity=st.sampled_from((None, KNOWN)),
    saturated=st.booleans(),
)
def test_the_next_decision_is_the_same_when_state_was_saved_and_restored(
    *, history: list[tuple[float, int]], last: float, capacity: Capacity | None, saturated: bool
) -> None:
    config = PolicyConfig(0, 60, capacity=capacity)
    target = ReadyTarget(config, 3)
    for rate, ticks in (*history, (last, 360)):
        for _ in range(ticks):
            target.tick(rate, **({"in_flight": 20.0 * target.replicas} if saturated else {}))
    target.decide(None, started=(42.0,))
    state = json.loads(json.dumps(target.scaled.learned_state()))
    restored = Sizer(config)
    restored.restore(state)
    assert _without_end(restored.state()) == _without_end(state)
    twin = ReadyTarget(config, target.replicas)
    twin.now, twin.scaled.saved_state = target.now, state
    decision, again = target.tick(last), twin.tick(last)
    assert again.replicas == decision.replicas
    assert again.startup == decision.startup == 42.0
    assert again.capacity == pytest.approx(decision.capacity, rel=0.05), "a span that is not over is not kept"


def _without_end(state: dict[str, Any]) -> dict[str, Any]:
    """Return the learned state of a policy without the time of the last reading, which a restart ignores."""
    of_policy = {key: value for key, value in state.items() if key != "backfilled"}
    return of_policy | {"forecast": state["forecast"] | {"end": None}}
