"""The count follows the current load without prediction, or without finished starts."""

import math
from typing import Literal

import pytest

from autoscaler.observation import Capacity
from autoscaler.policy.backlog import MOST_CATCH_UP
from autoscaler.policy.config import PolicyConfig
from autoscaler.policy.idle import IdleTimes
from autoscaler.policy.sizer import Sizer
from autoscaler.policy.startup import StartupTimes
from tests.unit.autoscaler.policy.test_sizer import RATE, SizedService, counts


@pytest.mark.parametrize("waiting", [0.0, 20.0])
@pytest.mark.parametrize(("before", "after"), [(18.0, 180.0), (18.0, 60.0), (2.0, 200.0)])
def test_count_after_a_step_stays_near_its_need_when_no_start_finishes(
    before: float, after: float, waiting: float
) -> None:
    world = SizedService(ready=3)
    counts(world, before, 1800)
    world.sizer.startup, world.startup = StartupTimes(), math.inf
    replicas = [world.tick(after, waiting=waiting * i).replicas for i in range(1440)]
    assert max(replicas) <= 2.5 * after / RATE
    assert max(replicas[720:]) <= (1 + MOST_CATCH_UP) * after / RATE + 1, "a longer wait asks for no more"
    assert min(replicas[2:]) >= 0.9 * after / RATE, "the need of the load is kept"


def test_replicas_follow_the_load_alone_when_prediction_is_disabled() -> None:
    world = SizedService()
    world.sizer = Sizer(PolicyConfig(max_replicas=100, capacity=Capacity(RATE, 10.0), prediction="Disabled"))
    twin = SizedService()
    for step in range(720):
        rate = 100.0 + 60.0 * math.sin(step / 40)
        twin.tick(rate)
        decision = world.tick(rate)
        assert decision.forecast is None
        assert decision.needed <= math.ceil(decision.rate / RATE * (1 + MOST_CATCH_UP)) + 1
    steady = [(world.tick(100.0).needed, twin.tick(100.0).needed) for _ in range(240)][120:]
    assert all(0.9 * 10 <= disabled <= 11 for disabled, _ in steady)
    assert all(disabled <= enabled for disabled, enabled in steady)


@pytest.mark.parametrize(("mode", "reason"), [("Enabled", "Prewarm"), ("Disabled", "Idle")])
def test_no_replica_is_started_before_a_request_when_prediction_is_disabled(
    mode: Literal["Enabled", "Disabled"], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SizedService(0, ready=0)
    world.sizer = Sizer(PolicyConfig(0, 10, capacity=Capacity(RATE, 10.0), prediction=mode))
    monkeypatch.setattr(IdleTimes, "prewarms", lambda *_: True)
    assert world.tick(0.0).reason == reason
