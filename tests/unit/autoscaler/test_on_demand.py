"""To zero and back, as the Autoscaler controller does it with what gateways and the activator say."""

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

from autoscaler.controller import AutoscalerController
from serving import clock
from serving.kube import Watches
from serving.resources import conditions, kinds
from serving.settings import ControllerSettings
from tests.fakes.api import FakeKube
from tests.fakes.convergence import until

Object = dict[str, Any]


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
    return {
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"replicas": replicas},
        "status": status,
    }


def autoscaler(*demand: Object) -> Object:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    return {
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"scaleTargetRef": target, "minReplicas": 0, "maxReplicas": 2, "idleTimeoutSeconds": 1},
        "status": {"demand": list(demand)},
    }


def lease(seconds: float) -> Object:
    spec = {"renewTime": ago(-seconds), "leaseDurationSeconds": 15}
    return {"metadata": {"name": "slipway-gateway-local", "namespace": "default"}, "spec": spec}


def said(reporter: str, in_flight: int = 0, last: float = 500) -> Object:
    return {"reporter": reporter, "inFlight": in_flight, "lastRequestTime": ago(last)}


def replicas(api: FakeKube) -> int:
    return int(api.find(kinds.DEPLOYMENT)[0]["spec"]["replicas"])


def reason(api: FakeKube) -> str:
    status = api.find(kinds.AUTOSCALER)[0].get("status") or {}
    return str((conditions.find(status.get("conditions"), "Ready") or {}).get("reason", ""))


@contextlib.asynccontextmanager
async def controlled(*objects: tuple[kinds.Kind, Object]) -> AsyncIterator[FakeKube]:
    api = FakeKube()
    for kind, obj in objects:
        status = obj.pop("status", None)
        api._create(kind, obj)
        if status is not None:
            api.change(kind, "default", obj["metadata"]["name"], {"status": status})
    kube = api.client("autoscaler")
    watches = Watches(kube)
    running = asyncio.gather(AutoscalerController(kube, ControllerSettings(), watches).run(), watches.run())
    try:
        yield api
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_request_that_waits_at_zero_brings_one_replica() -> None:
    demand = [said("gateway-local"), said("activator-local", 300)]
    async with controlled((kinds.DEPLOYMENT, deployment(0)), (kinds.AUTOSCALER, autoscaler(*demand))) as api:
        await until(lambda: replicas(api) == 1, "one replica")
        await until(lambda: reason(api) != "", "a reason")
        found = api.find(kinds.AUTOSCALER)[0]["status"]["demand"]
        assert found == demand, "others' words were taken away"


async def test_what_has_idled_goes_and_the_time_is_kept_without_anybody_asking() -> None:
    objects = (
        (kinds.DEPLOYMENT, deployment(2)), (kinds.LEASE, lease(15)),
        (kinds.AUTOSCALER, autoscaler(said("gateway-local", last=-0.2))),
    )  # fmt: skip
    async with controlled(*objects) as api:
        await until(lambda: reason(api) == "Idle", "it idles")
        assert replicas(api) == 2
        await until(lambda: replicas(api) == 0, "no replica")


async def test_nothing_goes_while_the_only_gateway_is_dead_or_says_nothing() -> None:
    for dead, demand in ((True, said("gateway-local")), (False, said("activator-local"))):
        objects = (
            (kinds.DEPLOYMENT, deployment(1)), (kinds.LEASE, lease(-20 if dead else 15)),
            (kinds.AUTOSCALER, autoscaler(demand)),
        )  # fmt: skip
        async with controlled(*objects) as api:
            await until(lambda api=api: reason(api) == "InUse", "a reason to stay")
            assert replicas(api) == 1
