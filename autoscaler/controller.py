"""The Autoscaler controller: the only writer of replica counts, through the scale subresource.

One tick reads the gateways' pages for all targets. A target is decided on at each tick while it has requests
or replicas that start, once a minute while it idles, and at once when its spec, its replicas, or what waits
for it changes.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from autoscaler import backfill, guards, others, page, profiles, targets
from autoscaler.fitting import Fitting
from autoscaler.observation import Load, Observation, Percentile
from autoscaler.policy.config import PolicyConfig, from_spec
from autoscaler.scaled import Scaled
from autoscaler.settings import DEFAULTS, AutoscalerSettings
from autoscaler.signals import demand
from autoscaler.signals import gauges as gauges_read
from autoscaler.signals.board import Board, Health
from autoscaler.signals.exposition import Target
from autoscaler.signals.pages import Pages
from autoscaler.store import Store
from autoscaler.targets import Seen
from autoscaler.writer import Writer
from serving import clock, errors, metrics
from serving.data_dir import DataDir
from serving.kube import Key, Kube, Reconciler, Recorder, Result, Watches, connect_eventually
from serving.resources import kinds, leases, names
from serving.resources.conditions import Condition
from serving.settings import ControllerSettings

Object = dict[str, Any]

log = logging.getLogger(__name__)

TICK_SECONDS = 5.0
"""Between readings of the gateways' pages: a start takes longer than this nearly always."""
QUICK_SECONDS = 1.0
"""The same while a target may go to zero within seconds: by who says `idleSeconds` of less than `QUICK_BELOW`."""
QUICK_BELOW = 10
HELD_SECONDS = 0.001
"""For which a request that an activator tells of stands between two readings: what arrived meanwhile is in
the next one."""
_TARGET = "target"
_REVISION = "revision"


class AutoscalerController:
    """Watches Autoscalers, the Deployments that they name, their Pods, and the gateways' Leases."""

    def __init__(
        self, kube: Kube, settings: ControllerSettings, watches: Watches, *,
        pages: Pages | None = None, store: Store | None = None, scaling: AutoscalerSettings = DEFAULTS,
    ) -> None:  # fmt: skip
        self._kube = kube
        self._recorder = Recorder(kube, kube.field_manager)
        self._pages, self._store, self._settings = pages, store, scaling
        self._autoscalers = watches.of(kinds.AUTOSCALER)
        self._deployments = watches.of(kinds.DEPLOYMENT)
        self._profiles = watches.of(kinds.CAPACITY_PROFILE)
        self._pods = watches.of(kinds.POD, labels=names.INFERENCE_LABEL)
        self._leases = watches.of(kinds.LEASE, namespace="default")
        self._loop = Reconciler("autoscaler", self.reconcile, settings)
        self._autoscalers.index(_TARGET, _target)
        self._pods.index(_REVISION, _revision)
        self._profiles.index(profiles.DIGEST, profiles.digest_of)
        self._autoscalers.on_change(self._autoscaler_changed)
        self._deployments.on_change(self._deployment_changed)
        self._pods.on_change(self._pod_changed)
        self._board = Board()
        self._targets = targets.Targets(kube)
        self._writer = Writer(kube, self._recorder, self._targets)
        self._gauges = gauges_read.Gauges(kube, settings.prometheus)
        self._backfill = backfill.Backfill(settings.prometheus) if settings.prometheus else None
        self._scaled: dict[Key, Scaled] = {}
        self._ticks = page.Ticks()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        informers = (self._autoscalers, self._deployments, self._pods, self._profiles, self._leases)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._kube.stay_connected(self._may_wake))
                group.create_task(self._loop.run(*informers))
                for informer in informers:
                    await informer.synced.wait()
                group.create_task(self._keep())
                group.create_task(Fitting(self._scaled).run())
                if self._backfill is not None:
                    group.create_task(self._backfill.run())
                if self._pages is not None:
                    await self._tick_for_ever(self._pages)
        finally:
            self._keep_all()
            await self._gauges.close()
            if self._pages is not None:
                await self._pages.close()

    async def metrics_page(self) -> str:
        """Return what Prometheus is told."""
        return page.text(self._scaled, self._ticks)

    def _may_wake(self) -> bool:
        return any(found["spec"].get("minReplicas") == 0 for found in self._autoscalers)

    async def _tick_for_ever(self, pages: Pages) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._tick(pages)
            except Exception:  # a page that nobody foresaw must not stop all of them
                log.exception("a tick")
            took = loop.time() - began
            self._ticks.took(took)
            await asyncio.sleep(max(self._pause() - took, took))

    async def _read_gauges(self) -> None:
        wanted: dict[Key, gauges_read.Wanted] = {}
        for key, scaled in self._scaled.items():
            asked = [metric for metric in scaled.config.metrics if metric.type in gauges_read.TYPES]
            if asked:
                wanted[key] = gauges_read.Wanted(asked, scaled.pods)
        await self._gauges.read(wanted)

    async def _tick(self, pages: Pages) -> None:
        wanted = {_signals_of(found) for found in self._autoscalers}
        timed = {_signals_of(found) for found in self._autoscalers if _has_latency(found)}
        read, _ = await asyncio.gather(pages.read(timed), self._read_gauges())
        live = leases.live(self._leases, clock.now())
        now = clock.monotonic()
        self._board.tick(read.readings, live, wanted, read.held, now)
        self._board.forget(wanted)
        for autoscaler in self._autoscalers:
            key = Key.of(autoscaler)
            scaled = self._scaled.get(key)
            if scaled is None or self._is_due(scaled, _signals_of(autoscaler), now):
                self._loop.add(key)

    def _is_due(self, scaled: Scaled, target: Target, now: float) -> bool:
        decision = scaled.decision
        if decision is None or self._board.is_busy(target) or scaled.starts.has_news:
            return True
        config = scaled.config
        may_go = decision.replicas > 0 and config.zero.idle is not None and _least(config) == 0
        is_kept = decision.reason == "KeepAlive" and decision.replicas <= 1
        is_steady = (decision.reason in ("Idle", "FixedCount", "MinReplicas") or is_kept) and not may_go
        return not is_steady or now - scaled.decided >= self._settings.idle_seconds

    def _pause(self) -> float:
        for scaled in self._scaled.values():
            idle = scaled.config.zero.idle
            if idle is not None and idle < QUICK_BELOW and scaled.decision and scaled.decision.replicas:
                return QUICK_SECONDS
        return TICK_SECONDS

    async def reconcile(self, key: Key) -> Result | None:
        """Size one target, and say so."""
        autoscaler = self._autoscalers.get(*key)
        if autoscaler is None or autoscaler["metadata"].get("deletionTimestamp"):
            if self._scaled.pop(key, None) is not None and self._store is not None:
                self._store.forget(key)
            return None
        spec = autoscaler["spec"]
        try:
            config = from_spec(spec, self._settings)
            seen = await self._seen(key, autoscaler)
        except errors.Permanent as error:
            await self._writer.refuse(autoscaler, error.reason, str(error))
            return None
        except errors.NotFound:
            target = spec["scaleTargetRef"]
            message = f"there is no {target.get('kind', 'Deployment')} {target['name']}"
            await self._writer.refuse(autoscaler, "TargetNotFound", message)
            return None
        scaled = self._remembered(key, autoscaler)
        scaled.configure(replace(config, capacity=profiles.capacity(self._profiles, seen.object)))
        self._teach(key, autoscaler, seen, scaled)
        await self._size(autoscaler, seen, scaled)
        return None if seen.is_ours else Result(targets.LOOK_SECONDS)

    def _teach(self, key: Key, autoscaler: Object, seen: Seen, scaled: Scaled) -> None:
        """Request the backfill of a target of which nothing is stored."""
        if self._backfill is None or scaled.is_fixed or scaled.is_taught:
            return
        scaled.is_taught = True
        query = backfill.query(seen.object)
        if query is not None:
            emit = partial(self._recorder.emit, autoscaler)
            self._backfill.request(backfill.Job(key, query, scaled.config, scaled.teach, emit))

    async def _seen(self, key: Key, autoscaler: Object) -> Seen:
        """Return the target as it is.

        Raises:
            errors.NotFound: there is none.
            errors.Permanent: it cannot be scaled.
        """
        ref = autoscaler["spec"]["scaleTargetRef"]
        kind = await self._targets.kind(ref.get("apiVersion", "apps/v1"), ref.get("kind", "Deployment"))
        target = Key(key.namespace, ref["name"])
        if kind is not kinds.DEPLOYMENT:
            foreign = await self._targets.look(kind, target, self._remembered(key, autoscaler).starts)
            return Seen(kind, foreign.object, list(foreign.pods.values()), is_ours=False)
        deployment = self._deployments.get(*target)
        if deployment is None:
            raise errors.NotFound(404, "NotFound", str(target))
        if names.INFERENCE_LABEL in (deployment["metadata"].get("labels") or {}):
            return Seen(kind, deployment, self._pods.by_index(_REVISION, str(target)), is_ours=True)
        foreign = await self._targets.look(kind, target, self._remembered(key, autoscaler).starts)
        return Seen(kind, deployment, list(foreign.pods.values()), is_ours=False)

    def _remembered(self, key: Key, autoscaler: Object) -> Scaled:
        scaled = self._scaled.get(key)
        if scaled is None:
            saved = self._store.read(key) if self._store is not None else None
            changes = list((autoscaler.get("status") or {}).get("decisions") or [])
            scaled = self._scaled[key] = Scaled(
                PolicyConfig(), saved, changes=changes, is_taught=saved is not None
            )
        return scaled

    async def _size(self, autoscaler: Object, seen: Seen, scaled: Scaled) -> None:
        now, moment = clock.now().timestamp(), clock.monotonic()
        key, desired = Key.of(autoscaler), _desired(scaled, seen.object, self._kube.field_manager)
        counts = seen.object.get("status") or {}
        scaled.pods = seen.pods
        observed = scaled.starts.take(desired, counts.get("readyReplicas", 0), seen.pods)
        gauges, sources = self._gauges.of(key)
        observation = Observation(
            now, observed, self._load(autoscaler, now) if self._is_counted(autoscaler, seen) else None, gauges,
            self._percentiles(autoscaler, scaled, moment), self._gauges.engine_load(key),
        )  # fmt: skip
        signals = [*(self._board.health(moment) if seen.is_ours else ()), *sources]
        decision = scaled.decide(observation)
        if not self._is_known(seen, signals, moment):
            decision = guards.without_readings(decision, desired, signals)
        decision = guards.after_a_raise(decision, desired, scaled.raised, moment)
        scaled.decision, scaled.decided = decision, moment
        self._ticks.decided(decision.reason)
        active = await self._active(key, seen, scaled, moment)
        scaled.is_active = active.status == "True"
        if decision.replicas != desired:
            try:
                held = demand.held(autoscaler, frozenset())
                await self._writer.act(autoscaler, seen, scaled, desired, active, held=held)
            except (errors.ApiError, errors.Unavailable) as error:
                scaled.refused = min(scaled.refused, moment)
                if moment - scaled.refused >= others.REFUSED_SECONDS:
                    active = others.refused(decision.replicas, error)
                    await self._writer.report(autoscaler, seen, scaled, active, signals, moment=moment)
                raise
        scaled.refused = math.inf
        if decision.replicas == desired and not counts:
            return  # nobody has counted its replicas yet; when somebody does, this is woken
        await self._writer.report(autoscaler, seen, scaled, active, signals, moment=moment)

    def _percentiles(self, autoscaler: Object, scaled: Scaled, moment: float) -> dict[str, Percentile]:
        target = _signals_of(autoscaler)
        found = {
            metric.name: self._board.percentile(target, metric.percentile, moment)
            for metric in scaled.config.metrics
            if metric.type == "Latency"
        }
        return {name: percentile for name, percentile in found.items() if percentile is not None}

    def _is_counted(self, autoscaler: Object, seen: Seen) -> bool:
        """Whether gateways count its requests: of a target that none knows, no requests is not what they say."""
        return seen.is_ours or bool(demand.held(autoscaler, frozenset()))

    def _is_known(self, seen: Seen, signals: Sequence[Health], moment: float) -> bool:
        """Whether all that a decision is made of has been read."""
        if not seen.is_ours:
            return bool(signals) and all(found.healthy for found in signals)
        is_read = self._board.is_whole and self._board.age(moment) <= self._settings.stale_seconds
        return is_read and all(found.healthy for found in signals)

    async def _active(self, key: Key, seen: Seen, scaled: Scaled, moment: float) -> Condition:
        """Return whether the count is written here."""
        scaler = await self._targets.other_scaler(Key(key.namespace, seen.name), seen.kind)
        return others.condition(
            scaled.config.prediction, scaler, is_fought=others.is_fought(scaled.theirs, moment)
        )

    def _load(self, autoscaler: Object, now: float) -> Load | None:
        load = self._board.take(_signals_of(autoscaler))
        held = demand.held(autoscaler, demand.dead(self._leases, clock.now()))
        if not held:
            return load
        if load is not None:
            return replace(load, held=max(load.held, held))
        return Load(now - HELD_SECONDS, now, arrivals=0, work=0, finished=0, in_flight=0, held=held)

    async def _keep(self) -> None:
        """Write what was learned, one target after the other: a thousand at once would hold the ticks up for
        seconds.
        """
        while True:
            keys = list(self._scaled)
            if not keys:
                await asyncio.sleep(self._settings.save_seconds)
            for key in keys:
                await asyncio.sleep(self._settings.save_seconds / len(keys))
                if (scaled := self._scaled.get(key)) is not None:
                    self._keep_one(key, scaled)

    def _keep_all(self) -> None:
        for key, scaled in self._scaled.items():
            self._keep_one(key, scaled)

    def _keep_one(self, key: Key, scaled: Scaled) -> None:
        state = scaled.state()
        if self._store is not None and state is not None:
            self._store.write(key, state)

    def _autoscaler_changed(self, before: Object | None, after: Object | None) -> None:
        """Only what others say of it is news: its status is what was written here."""
        if before is not None and after is not None:
            same = before["metadata"].get("generation") == after["metadata"].get("generation")
            waits = [(obj.get("status") or {}).get("demand") for obj in (before, after)]
            gone = after["metadata"].get("deletionTimestamp")
            if same and waits[0] == waits[1] and not gone:
                return
        self._loop.add(Key.of(after or before or {}))

    def _deployment_changed(self, before: Object | None, after: Object | None) -> None:
        for autoscaler in self._autoscalers.by_index(_TARGET, str(Key.of(after or before or {}))):
            self._loop.add(Key.of(autoscaler))

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        now = clock.now().timestamp()
        for revision in _revision(after or before or {}):
            for autoscaler in self._autoscalers.by_index(_TARGET, revision):
                scaled = self._scaled.get(Key.of(autoscaler))
                if scaled is not None:
                    scaled.starts.seen(before, after, now)


def _target(autoscaler: Object) -> Iterable[str]:
    return [str(Key(autoscaler["metadata"]["namespace"], autoscaler["spec"]["scaleTargetRef"]["name"]))]


def _revision(pod: Object) -> Iterable[str]:
    name = (pod["metadata"].get("labels") or {}).get(names.REVISION_LABEL)
    return [str(Key(pod["metadata"]["namespace"], name))] if name else []


def _has_latency(autoscaler: Object) -> bool:
    return any(metric["type"] == "Latency" for metric in autoscaler["spec"].get("metrics") or ())


def _signals_of(autoscaler: Object) -> Target:
    return Target(autoscaler["metadata"]["namespace"], autoscaler["spec"]["scaleTargetRef"]["name"])


def _desired(scaled: Scaled, deployment: Object, manager: str) -> int:
    """Return the count that is asked for: as it was written a moment ago, where the watch has not shown that yet."""
    count = int((deployment.get("spec") or {}).get("replicas", 1))
    if scaled.wrote is not None:
        written, version = scaled.wrote
        if int(deployment["metadata"]["resourceVersion"]) < version:
            return written
        scaled.wrote = None
    mine = (scaled.known, scaled.intended)  # what was intended may have been done though nobody answered
    if scaled.known is not None and count not in mine:
        if not others.wrote(deployment, manager):
            others.count(scaled.theirs, clock.monotonic())
        if count > scaled.known:
            scaled.raised = scaled.raised.again(count, clock.monotonic())
    scaled.known, scaled.intended = count, None
    return count


def _least(config: PolicyConfig) -> int:
    return min([config.min_replicas, *(s.minimum for s in config.schedules if s.minimum is not None)])


@asynccontextmanager
async def prepared(
    data_dir: DataDir, settings: ControllerSettings, watches: Watches, scaling: AutoscalerSettings = DEFAULTS
) -> AsyncIterator[AutoscalerController]:
    """Give a controller with a client of its own; it runs once `watches` do."""
    async with await connect_eventually(data_dir.kubeconfig, component="autoscaler") as kube:
        controller = AutoscalerController(
            kube,
            settings,
            watches,
            pages=Pages(data_dir.pages),
            store=Store(data_dir.autoscaler),
            scaling=scaling,
        )
        async with metrics.served(
            controller.metrics_page, data_dir.metrics("autoscaler"), scaling.metrics_port
        ):
            yield controller
