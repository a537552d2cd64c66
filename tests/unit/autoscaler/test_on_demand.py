"""Scale to zero and back by the Autoscaler controller, with counts of gateways and activator."""

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable

import pytest

from autoscaler import controller
from serving import clock
from serving.kube import Watches
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions
from serving.settings import ControllerSettings
from tests.fakes.gateway_pages import FakePages
from tests.fakes.kube import FakeKube
from tests.objects import deployments
from tests.rig.control_plane.convergence import until


def ago(seconds: float) -> str:
    return clock.rfc3339_micro(clock.now() - dt.timedelta(seconds=seconds))


def deployment(replicas: int) -> Object:
    """A Deployment whose replicas have been there for long."""
    available = {"type": "Available", "status": "True", "lastTransitionTime": ago(1000)}
    status = {
        "replicas": replicas,
        "readyReplicas": replicas,
        "observedGeneration": 1,
        "conditions": [available],
    }
    return deployments.deployment("d", replicas, labels={names.INFERENCE_LABEL: "i"}, status=status)


def autoscaler(*demand: Object) -> Object:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    return {
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": 0,
            "maxReplicas": 2,
            "behavior": {"scaleToZero": {"idleSeconds": 1}},
        },
        "status": {"demand": list(demand)},
    }


def lease(seconds: float) -> Object:
    spec = {"renewTime": ago(-seconds), "leaseDurationSeconds": 15}
    return {"metadata": {"name": "slipway-gateway-local", "namespace": "default"}, "spec": spec}


def demand_of(reporter: str, in_flight: int = 0, last: float = 500) -> Object:
    return {"reporter": reporter, "inFlight": in_flight, "lastRequestTime": ago(last)}


def replicas(api: FakeKube) -> int:
    return int(api.find(kinds.DEPLOYMENT)[0]["spec"]["replicas"])


def reason(api: FakeKube) -> str:
    status = api.find(kinds.AUTOSCALER)[0].get("status") or {}
    return str((conditions.find(status.get("conditions"), "Ready") or {}).get("reason", ""))


@contextlib.asynccontextmanager
async def controlled(
    *objects: tuple[kinds.Kind, Object], pages: FakePages | None = None
) -> AsyncIterator[FakeKube]:
    api = FakeKube()
    for kind, obj in objects:
        status = obj.pop("status", None)
        api.add(kind, obj)
        if status is not None:
            api.change(kind, "default", obj["metadata"]["name"], {"status": status})
    kube = api.client("autoscaler")
    watches = Watches(kube)
    scaler = controller.AutoscalerController(kube, ControllerSettings(), watches, pages=pages)
    running = asyncio.gather(scaler.run(), watches.run())
    try:
        yield api
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_held_request_at_zero_starts_one_replica() -> None:
    demand = [demand_of("gateway-local"), demand_of("activator-local", 300, last=1)]
    async with controlled((kinds.DEPLOYMENT, deployment(0)), (kinds.AUTOSCALER, autoscaler(*demand))) as api:
        await until(lambda: replicas(api) == 1, "one replica")
        await until(lambda: reason(api) != "", "a reason")
        reported = api.find(kinds.AUTOSCALER)[0]["status"]["demand"]
        assert reported == demand, "demands of other writers were removed"


async def test_idle_replica_is_removed_on_time_without_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "QUICK_SECONDS", 0.05)
    objects = (
        (kinds.DEPLOYMENT, deployment(2)),
        (kinds.LEASE, lease(15)),
        (kinds.AUTOSCALER, autoscaler()),
    )
    pages = FakePages("d")
    pages.rates["d"] = 100.0
    async with controlled(*objects, pages=pages) as api:
        await until(lambda: pages.ticks > 20, "readings")
        assert replicas(api) > 0
        pages.rates["d"] = 0.0
        began = clock.monotonic()
        await until(lambda: replicas(api) == 0, "no replica")
        assert clock.monotonic() - began > 0.9, "it went before its idle time had passed"


async def test_no_replica_is_removed_while_no_gateway_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "QUICK_SECONDS", 0.05)
    objects = (
        (kinds.DEPLOYMENT, deployment(1)),
        (kinds.LEASE, lease(15)),
        (kinds.AUTOSCALER, autoscaler()),
    )
    pages = FakePages("d")
    pages.is_gone = True
    async with controlled(*objects, pages=pages) as api:
        await until(lambda: pages.ticks > 40, "readings for longer than the idle time")
        assert replicas(api) == 1
        pages.is_gone = False
        await until(lambda: replicas(api) == 0, "no replica")


async def test_held_request_after_scale_to_zero_does_not_wait_for_the_next_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "QUICK_SECONDS", 0.05)
    monkeypatch.setattr(controller, "TICK_SECONDS", 0.05)
    objects = (
        (kinds.DEPLOYMENT, deployment(1)),
        (kinds.LEASE, lease(15)),
        (kinds.AUTOSCALER, autoscaler()),
    )
    pages = FakePages("d")
    async with controlled(*objects, pages=pages) as api:
        await until(lambda: reason(api) != "", "a decision on the replica, from which on ticks are quick")
        monkeypatch.setattr(controller, "TICK_SECONDS", 600.0)
        await until(lambda: replicas(api) == 0, "no replica")
        waiting = {"status": {"demand": [demand_of("activator-local", 1)]}}
        api.change(kinds.AUTOSCALER, "default", "a", waiting)
        await until(lambda: replicas(api) == 1, "one replica")
        answered = {"status": {"demand": [demand_of("activator-local")]}}
        api.change(kinds.AUTOSCALER, "default", "a", answered)
        api.change(kinds.DEPLOYMENT, "default", "d", {"status": {"readyReplicas": 1}})
        await asyncio.sleep(0.1)
        assert replicas(api) == 1, "it was removed before a reading without requests"


DAY = {"name": "day", "start": "0 8 * * *", "end": "0 18 * * *"}


@pytest.mark.parametrize(
    ("spec", "is_needed"),
    [
        ({"minReplicas": 0}, True),
        ({"minReplicas": 1, "schedules": [{**DAY, "minReplicas": 0}]}, True),
        ({"minReplicas": 1, "schedules": [{**DAY, "minReplicas": 2}]}, False),
        ({"minReplicas": 1, "schedules": [{**DAY, "maxReplicas": 9}]}, False),
    ],
)
async def test_a_connection_is_kept_open_when_a_target_may_be_at_zero(
    spec: Object, monkeypatch: pytest.MonkeyPatch, *, is_needed: bool
) -> None:
    kept_while: list[Callable[[], bool]] = []

    async def stay_connected(_: FakeKube, is_connected: Callable[[], bool]) -> None:
        kept_while.append(is_connected)

    monkeypatch.setattr(FakeKube, "stay_connected", stay_connected)
    scaled = autoscaler()
    scaled["spec"] |= spec
    async with controlled((kinds.DEPLOYMENT, deployment(1)), (kinds.AUTOSCALER, scaled)) as api:
        await until(lambda: reason(api) != "", "a reason")
        (is_kept,) = kept_while
        assert is_kept() is is_needed
        api.change(kinds.AUTOSCALER, "default", "a", {"spec": {"minReplicas": 1, "schedules": None}})
        await until(lambda: not is_kept(), "no target at zero")
