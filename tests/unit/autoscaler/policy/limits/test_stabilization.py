"""`stabilizationSeconds` counts seconds: of any number of readings, with a known load and without."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.observation import Capacity, Load, Observation, Replicas
from autoscaler.policy.config import Metric, Pace, PolicyConfig, Zero
from autoscaler.policy.limits.stabilization import Stabilization
from autoscaler.policy.sizer import Sizer
from tests.unit.autoscaler.policy.test_never import RATE, START, ReadyTarget

QUERY = Metric("PromQL/jobs", "PromQL", 1.0)
MOST = 9


@settings(max_examples=200)
@given(
    window=st.integers(0, 600),
    first=st.integers(1, MOST),
    samples=st.lists(
        st.tuples(st.sampled_from((1, 5, 5, 60, 150, 900)), st.none() | st.integers(1, MOST)), max_size=30
    ),
)
def test_fall_is_answered_after_the_window_whatever_samples_are_absent(
    window: int, first: int, samples: list[tuple[int, int | None]]
) -> None:
    sizer = Sizer(PolicyConfig(1, MOST, metrics=(QUERY,), down=Pace(stabilization=float(window))))
    now, count, needs = START, first, [(START, first)]
    for seconds, value in [(0, first), *samples]:
        now += seconds
        gauges = {} if value is None else {QUERY.name: float(value)}
        decision = sizer.decide(Observation(now, Replicas(count, count), None, gauges))
        if value is None:
            assert decision.replicas == count
            continue
        needs.append((now, value))
        count = max(needed for time, needed in needs if time >= now - window)
        assert decision.replicas == count


@settings(max_examples=200)
@given(
    window=st.integers(0, 600),
    first=st.integers(1, MOST),
    samples=st.lists(
        st.tuples(st.sampled_from((1, 5, 5, 60, 150, 900)), st.integers(1, MOST)), min_size=1, max_size=30
    ),
)
def test_rise_is_answered_once_it_has_lasted_for_the_window(
    window: int, first: int, samples: list[tuple[int, int]]
) -> None:
    """The least of the counts needed within the window, each of which was needed until the next decision."""
    paces = {"up": Pace(stabilization=float(window)), "down": Pace(stabilization=0.0)}
    sizer = Sizer(PolicyConfig(1, MOST, metrics=(QUERY,), **paces))
    now, count, needed, ended = START, first, first, []
    for seconds, value in [(0, first), *samples]:
        now += seconds
        ended.append((now, needed))
        needed = value
        decision = sizer.decide(Observation(now, Replicas(count, count), None, {QUERY.name: float(value)}))
        least = min([value, *(need for time, need in ended if time > now - window)])
        assert decision.replicas == (max(least, count) if value > count else value)
        count = decision.replicas


@pytest.mark.parametrize("window", [2, 30])
def test_rise_waits_for_the_window_when_decisions_before_it_are_farther_apart(window: int) -> None:
    """A steady target is decided on once in `idle_seconds`."""
    sizer = Sizer(PolicyConfig(1, MOST, metrics=(QUERY,), up=Pace(stabilization=float(window))))
    count, risen = 1, {}
    for seconds, value in [*((60 * i, 0.0) for i in range(6)), *((345 + 5 * i, 5.0) for i in range(8))]:
        seen = Observation(START + seconds, Replicas(count, count), None, {QUERY.name: value})
        count = sizer.decide(seen).replicas
        risen[seconds] = count
    assert next(second for second, replicas in risen.items() if replicas == 5) == 345 + max(window, 5)


@pytest.mark.parametrize(("window", "rises_at_once"), [(None, True), (0.0, True), (60.0, False)])
def test_rise_under_load_waits_for_a_window_that_the_spec_sets(
    window: float | None, *, rises_at_once: bool
) -> None:
    config = PolicyConfig(1, MOST, up=Pace(stabilization=window), capacity=Capacity(RATE, 10.0))
    target = ReadyTarget(config, 1)
    calm = [target.tick(0.3 * RATE).replicas for _ in range(24)]
    soon = [target.tick(3.0 * RATE).replicas for _ in range(6)]
    later = [target.tick(3.0 * RATE).replicas for _ in range(24)]
    assert max(calm) == 1
    assert (max(soon) > 1) is rises_at_once
    assert max(later) >= 3


def test_target_at_zero_rises_at_once_when_a_request_waits() -> None:
    stabilization = Stabilization(None, 600.0)
    assert stabilization.sustained_rise(START, 0, 0) == 0
    assert stabilization.sustained_rise(START + 5, 0, 2) == 2
    assert stabilization.sustained_rise(START + 10, 2, 5) == 2


def test_existing_count_is_kept_for_the_window_when_the_controller_starts_without_a_load() -> None:
    sizer = Sizer(PolicyConfig(1, MOST, metrics=(QUERY,), down=Pace(stabilization=300.0)))
    counts = [
        sizer.decide(Observation(START + seconds, Replicas(7, 7), None, {QUERY.name: 2.0})).replicas
        for seconds in (0, 5, 300, 301)
    ]
    assert counts == [7, 7, 7, 2]


@pytest.mark.parametrize("window", [None, 600.0])
def test_target_that_wakes_from_zero_gets_the_need_of_now_within_the_window(window: float | None) -> None:
    metrics = (Metric("TokenQueueDepth", "TokenQueueDepth", 600.0),)
    sizer = Sizer(PolicyConfig(0, 3, metrics=metrics, down=Pace(stabilization=window), zero=Zero(3.0)))
    gauges = {"TokenQueueDepth": 1800.0}
    burst = sizer.decide(Observation(START, Replicas(3, 3), None, gauges))
    assert burst.replicas == 3
    silence = Load(START + 15, START + 20, 0, 0, 0, 0, held=0)
    asleep = Observation(START + 20, Replicas(0, 0), silence, {"TokenQueueDepth": 0.0})
    assert sizer.decide(asleep).replicas == 0
    for now, replicas in ((START + 25, Replicas(0, 0)), (START + 30, Replicas(1, 0, (START + 25,)))):
        held = Load(now - 5, now, 1, 0, 0, 0, held=1)
        awake = sizer.decide(Observation(now, replicas, held, {"TokenQueueDepth": 50.0}))
        assert awake.replicas == 1


def stopped_load(window: float, idle: float) -> list[int]:
    """Return the counts at each reading after the load of five replicas has stopped; the first is before."""
    config = PolicyConfig(
        0,
        20,
        down=Pace(stabilization=window),
        zero=Zero(idle),
        prediction="Disabled",
        capacity=Capacity(RATE, 10.0),
    )
    target = ReadyTarget(config, 1)
    for _ in range(60):
        target.tick(5 * RATE)
    return [target.replicas, *(target.tick(0.0).replicas for _ in range(200))]


@pytest.mark.parametrize("window", [600, 60])
def test_idle_target_keeps_its_replicas_for_the_window_when_it_may_go_to_zero(window: int) -> None:
    before, *counts = stopped_load(window, idle=900.0)
    assert before >= 5
    assert set(counts[: (window - 5) // 5]) == {before}
    assert counts[(window + 60) // 5] < before
    assert counts[-1] == 0


def test_idle_target_goes_to_zero_when_the_window_is_longer_than_the_idle_time() -> None:
    before, *counts = stopped_load(3600.0, idle=60.0)
    assert counts[5] == before
    assert counts[20] == 0
