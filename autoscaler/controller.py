"""The Autoscaler controller: the only writer of replica counts, through the scale subresource."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from autoscaler import policy
from serving import clock, errors
from serving.kube import Key, Kube, Reconciler, Recorder, Result, Watches, connect_eventually
from serving.resources import conditions, kinds, leases, routing
from serving.resources.conditions import Condition
from serving.settings import ControllerSettings

Object = dict[str, Any]

_TARGET = "target"


class AutoscalerController:
    """Watches Autoscalers, the Deployments that they name, and the gateways' Leases."""

    def __init__(self, kube: Kube, settings: ControllerSettings, watches: Watches) -> None:
        self._kube = kube
        self._recorder = Recorder(kube, kube.field_manager)
        self._autoscalers = watches.of(kinds.AUTOSCALER)
        self._deployments = watches.of(kinds.DEPLOYMENT)
        self._leases = watches.of(kinds.LEASE, namespace="default")
        self._loop = Reconciler("autoscaler", self.reconcile, settings)
        self._autoscalers.index(_TARGET, _target)
        self._autoscalers.on_change(lambda before, after: self._loop.add(Key.of(after or before or {})))
        self._deployments.on_change(self._deployment_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._kube.stay_connected(self._may_wake))
            group.create_task(self._loop.run(self._autoscalers, self._deployments, self._leases))

    def _may_wake(self) -> bool:
        return any(found["spec"].get("minReplicas") == 0 for found in self._autoscalers)

    async def reconcile(self, key: Key) -> Result | None:
        """Size one target, and say so."""
        autoscaler = self._autoscalers.get(*key)
        if autoscaler is None or autoscaler["metadata"].get("deletionTimestamp"):
            return None
        spec = autoscaler["spec"]
        target = spec["scaleTargetRef"]
        if target.get("kind", "Deployment") != "Deployment":
            condition = Condition("Ready", "False", "UnsupportedTarget", "only Deployments can be sized")
            await self._report(autoscaler, 0, 0, condition)
            return None
        deployment = self._deployments.get(key.namespace, target["name"])
        if deployment is None:
            missing = Condition(
                "Ready", "False", "TargetNotFound", f"there is no Deployment {target['name']}"
            )
            await self._report(autoscaler, 0, 0, missing)
            return None
        now = clock.now()
        decision = policy.decide(
            _as_it_is(autoscaler, deployment),
            _bounds(spec),
            _demand(autoscaler),
            leases.live(self._leases, now),
            now,
        )
        if decision.replicas != deployment["spec"].get("replicas", 1):
            await self._scale(autoscaler, deployment, decision)
        elif not deployment.get("status"):
            return None  # nobody has counted its replicas yet; when somebody does, this is woken
        running = (deployment.get("status") or {}).get("replicas", 0)
        condition = Condition("Ready", "True", decision.reason, decision.message)
        await self._report(autoscaler, decision.replicas, running, condition)
        again = decision.look_again
        return Result(again.total_seconds()) if again is not None else None

    async def _scale(self, autoscaler: Object, deployment: Object, decision: policy.Decision) -> None:
        meta = deployment["metadata"]
        patch = {"spec": {"replicas": decision.replicas}}
        try:
            await self._kube.patch(
                kinds.DEPLOYMENT, meta["namespace"], meta["name"], patch, subresource="scale"
            )
        except errors.NotFound:
            return  # deleted meanwhile; the watch says so
        await self._recorder.emit(autoscaler, "Scaled", f"{meta['name']}: {decision.message}")

    async def _report(self, autoscaler: Object, desired: int, current: int, ready: Condition) -> None:
        old = autoscaler.get("status") or {}
        now = clock.rfc3339(clock.now())
        generation = autoscaler["metadata"].get("generation", 1)
        status = {
            "desiredReplicas": desired,
            "currentReplicas": current,
            "reason": ready.message,
            "observedGeneration": generation,
            "conditions": conditions.merge(old.get("conditions"), [ready], generation=generation, now=now),
        }
        if desired != old.get("desiredReplicas"):
            status["lastScaleTime"] = now
        elif "lastScaleTime" in old:
            status["lastScaleTime"] = old["lastScaleTime"]
        if status != {name: value for name, value in old.items() if name != "demand"}:
            await self._kube.apply_status(kinds.AUTOSCALER, autoscaler, status)

    def _deployment_changed(self, before: Object | None, after: Object | None) -> None:
        for autoscaler in self._autoscalers.by_index(_TARGET, str(Key.of(after or before or {}))):
            self._loop.add(Key.of(autoscaler))


def _target(autoscaler: Object) -> Iterable[str]:
    return [str(Key(autoscaler["metadata"]["namespace"], autoscaler["spec"]["scaleTargetRef"]["name"]))]


def _bounds(spec: Object) -> policy.Bounds:
    idle = dt.timedelta(seconds=spec.get("idleTimeoutSeconds", routing.IDLE_SECONDS))
    return policy.Bounds(spec.get("minReplicas", 1), spec.get("maxReplicas", 1), idle)


def _as_it_is(autoscaler: Object, deployment: Object) -> policy.Target:
    meta, status = deployment["metadata"], deployment.get("status") or {}
    available = conditions.find(status.get("conditions"), "Available") or {}
    up_since = None
    if available.get("status") == "True" and status.get("observedGeneration") == meta.get("generation"):
        scaled = (autoscaler.get("status") or {}).get("lastScaleTime")
        known = (autoscaler["metadata"].get("creationTimestamp"), available.get("lastTransitionTime"), scaled)
        up_since = max((clock.parse(moment) for moment in known if moment), default=None)
    return policy.Target(deployment["spec"].get("replicas", 1), status.get("readyReplicas", 0), up_since)


def _demand(autoscaler: Object) -> list[policy.Demand]:
    found = (autoscaler.get("status") or {}).get("demand") or []
    return [
        policy.Demand(
            said["reporter"],
            said.get("inFlight", 0),
            clock.parse(said["lastRequestTime"]) if said.get("lastRequestTime") else None,
        )
        for said in found
    ]


@asynccontextmanager
async def prepared(
    kubeconfig: Path | None, settings: ControllerSettings, watches: Watches
) -> AsyncIterator[AutoscalerController]:
    """Give a controller with a client of its own; it runs once `watches` do."""
    async with await connect_eventually(kubeconfig, component="autoscaler") as kube:
        yield AutoscalerController(kube, settings, watches)
