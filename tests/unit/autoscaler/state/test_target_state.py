"""The idle time of a target whose policy takes the state of an earlier run, or a backfilled one."""

from dataclasses import replace

import pytest

from autoscaler.observation import Capacity, Load, Observation, Replicas
from autoscaler.policy.config import PolicyConfig, Zero
from autoscaler.state.backfill import backfilled_state
from autoscaler.state.target_state import TargetState
from serving.objects import Object

IDLE = 60.0
CONFIG = PolicyConfig(0, 9, capacity=Capacity(10.0, 1.0), zero=Zero(idle=IDLE))
STEP = 5.0
RESTART = 1_700_000_000.0


def decided(state: TargetState, now: float, arrivals: float = 0.0, replicas: int = 1) -> int:
    load = Load(now - STEP, now, arrivals, arrivals, arrivals, 0, 0)
    return state.decide(Observation(now, Replicas(replicas, replicas), load)).replicas


def stored(ago: float) -> Object:
    """The state of a controller that saw a request and then stored its state, `ago` seconds before the
    restart.
    """
    state = TargetState(CONFIG)
    decided(state, RESTART - ago, arrivals=2.0)
    learned = state.learned_state()
    assert learned is not None
    return learned


@pytest.mark.parametrize("is_backfilled", [False, True], ids=["stored", "backfilled"])
def test_last_replica_stays_for_the_idle_time_when_the_controller_was_restarted(
    *, is_backfilled: bool
) -> None:
    earlier = backfilled_state(CONFIG, {RESTART - 300: 0.5}) if is_backfilled else stored(300.0)
    after = TargetState(CONFIG, None if is_backfilled else earlier)
    if is_backfilled:
        after.restore_history(earlier)
    counts = {since: decided(after, RESTART + since) for since in range(5, 301, 5)}
    assert min(counts[since] for since in range(5, 65, 5)) == 1
    assert counts[300] == 0


def test_target_at_zero_stays_there_when_the_controller_was_restarted() -> None:
    after = TargetState(CONFIG, stored(300.0))
    assert decided(after, RESTART, replicas=0) == 0
    assert after.sizer is not None
    assert after.sizer.idle.last_request == RESTART - 300.0, "its idle time goes on"


def test_idle_time_goes_on_when_the_spec_changes() -> None:
    state = TargetState(CONFIG, stored(300.0))
    decided(state, RESTART, arrivals=2.0)
    state.configure(replace(CONFIG, max_replicas=8))
    assert state.learned_state() is not None, "it can be stored before the next decision"
    assert decided(state, RESTART + IDLE - STEP) == 1
    state.configure(CONFIG)
    assert decided(state, RESTART + 300.0) == 0


def test_capacity_is_that_of_the_new_profile_when_another_revision_serves() -> None:
    state = TargetState(CONFIG)
    for now in range(0, 600, 5):
        load = Load(now, now + STEP, 50, 50, 25, 40, 0, 8)
        state.decide(Observation(now + STEP, Replicas(1, 1), load))
    assert state.sizer is not None
    assert state.sizer.capacity.source == "Corrected"
    state.configure(replace(CONFIG, max_replicas=8))
    assert state.sizer.capacity.source == "Corrected"
    state.configure(replace(CONFIG, capacity=Capacity(20.0, 1.0)))
    assert state.sizer.capacity.value == Capacity(20.0, 1.0)
