"""The load that an observation has between two readings."""

import datetime as dt

import pytest

from autoscaler.observation import Load, Replicas
from autoscaler.policy.config import PolicyConfig
from autoscaler.readings import Readings
from autoscaler.settings import DEFAULTS
from autoscaler.signals.exposition import ScaleTargetName
from autoscaler.state.target_state import TargetState
from autoscaler.targets import ScaleTarget
from serving import clock
from serving.kube import Key, Watches
from serving.objects import Object
from serving.resources import kinds
from tests.fakes.gateway_pages import FakePages
from tests.fakes.kube import FakeKube
from tests.objects.deployments import deployment

BEGIN = dt.datetime(2026, 3, 4, 12, tzinfo=dt.UTC)


def autoscaler(held: int) -> Object:
    demand = {"reporter": "activator-local", "inFlight": held}
    return {
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"scaleTargetRef": {"name": "d"}},
        "status": {"demand": [demand]},
    }


async def test_held_requests_between_two_readings_end_with_the_last_one_while_gateways_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed = 0.0
    monkeypatch.setattr(clock, "monotonic", lambda: passed)
    monkeypatch.setattr(clock, "now", lambda: BEGIN + dt.timedelta(seconds=passed))
    kube, pages = FakeKube(), FakePages("d")
    gateways = Watches(kube).of(kinds.LEASE, namespace="default")
    readings = Readings(kube, gateways, DEFAULTS, prometheus="", known_engines={})
    target = ScaleTarget(kinds.DEPLOYMENT, deployment("d", 1), [], is_ours=True)
    state = TargetState(PolicyConfig())
    pages.rates["d"] = 10.0

    def load(held: int) -> Load:
        now, replicas = clock.now().timestamp(), Replicas(1, 1)
        observed = readings.observation(
            autoscaler(held), target, state, replicas, now=now, monotonic_now=clock.monotonic()
        )
        assert observed.load is not None
        return observed.load

    async def tick() -> None:
        await readings.tick(pages, {Key("default", "a"): ScaleTargetName("default", "d")}, frozenset())

    assert load(2).end == clock.now().timestamp(), "no gateway was read yet"
    await tick()
    passed = 5.0
    await tick()
    last = load(0)
    passed = 5.4
    between = load(3)
    assert (between.held, between.arrivals, between.end) == (3, 0, last.end)
    passed, pages.seconds_behind = 6.0, 0.8
    await tick()
    assert load(3).end > between.end
    passed = 60.0
    assert load(3).end == clock.now().timestamp(), "readings have stopped"
