"""The Autoscaler controller: the only writer of replica counts, through the scale subresource.

One tick reads the gateways' pages for all targets. The controller decides on a target at each tick while the
target has requests, or time or a gauge may change its count; otherwise once in `idle_seconds`, and at once
when the spec, the Deployment or the number of held requests changes.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from autoscaler import (
    guards,
    metrics_page,
    observed_count,
    other_writers,
    profiles,
    readings,
    status,
    targets,
)
from autoscaler.policy.config import PolicyConfig, from_spec
from autoscaler.policy.sizer import TICK_SECONDS
from autoscaler.settings import DEFAULTS, AutoscalerSettings
from autoscaler.signals import gauges
from autoscaler.signals.exposition import ScaleTargetName
from autoscaler.signals.pages import Pages
from autoscaler.state import backfill
from autoscaler.state.fitting import Fitting
from autoscaler.state.saver import StateSaver
from autoscaler.state.store import StateStore
from autoscaler.state.target_state import TargetState
from autoscaler.targets import ScaleTarget
from autoscaler.writer import Writer
from serving import clock, engines, errors, metrics
from serving.data_dir import DataDir
from serving.kube import EventRecorder, Key, Kube, Reconciler, Result, Watches, connect_eventually
from serving.objects import Object, is_deleting
from serving.resources import kinds, leases, names
from serving.resources.engine import Engine
from serving.resources.kubernetes.conditions import Condition
from serving.settings import ActivatorSettings, ControllerSettings, PagesSettings

log = logging.getLogger(__name__)

QUICK_SECONDS = 1.0
"""Seconds between ticks while a target with `idleSeconds` of less than `QUICK_BELOW` has replicas."""
QUICK_BELOW = 10
"""`idleSeconds` below which ticks are quick: a pause of `TICK_SECONDS` could exceed it by more than half."""
_TARGET = "target"
"""Index of Autoscalers by their target, `_target_of`."""
_REVISION = "revision"
"""Index of Pods by their Deployment, `_revision_of`."""


class AutoscalerController:
    """Watches Autoscalers, the Deployments that they name, their Pods, and the gateways' Leases."""

    def __init__(
        self,
        kube: Kube,
        settings: ControllerSettings,
        watches: Watches,
        *,
        pages: Pages | None = None,
        store: StateStore | None = None,
        scaling: AutoscalerSettings = DEFAULTS,
        known_engines: Mapping[str, Engine] = MappingProxyType({}),
        hold_seconds: float = ActivatorSettings.deadline_seconds,
    ) -> None:
        """Take the sources; the controller starts with `run`.

        Args:
            kube: a client.
            settings: of all controllers.
            watches: of the process; they must not run yet.
            pages: of the gateways and activators; None: there are no ticks, and only changes cause decisions.
            store: of the learned states; None: they end with the process.
            scaling: the settings of the autoscaler.
            known_engines: the inference engines of the installation, by name.
            hold_seconds: longest time for which an activator holds a request.
        """
        self._kube = kube
        self._recorder = EventRecorder(kube, kube.field_manager)
        self._pages, self._store, self._settings = pages, store, scaling
        self._autoscalers = watches.of(kinds.AUTOSCALER)
        self._deployments = watches.of(kinds.DEPLOYMENT)
        self._profiles = watches.of(kinds.CAPACITY_PROFILE)
        self._pods = watches.of(kinds.POD, labels=names.INFERENCE_LABEL)
        self._leases = watches.of(kinds.LEASE, namespace=settings.lease_namespace)
        self._loop = Reconciler("autoscaler", self.reconcile, settings)
        self._autoscalers.index(_TARGET, _target_of)
        self._pods.index(_REVISION, _revision_of)
        self._profiles.index(profiles.MODEL, profiles.model_of)
        self._autoscalers.on_change(self._autoscaler_changed)
        self._deployments.on_change(self._deployment_changed)
        self._pods.on_change(self._pod_changed)
        self._namespace = settings.watch_namespace
        self._targets = targets.Targets(kube, self._namespace)
        self._writer = Writer(kube, self._recorder, self._targets)
        self._readings = readings.Readings(
            kube,
            self._leases,
            scaling,
            prometheus=settings.prometheus,
            known_engines=known_engines,
            hold_seconds=hold_seconds,
        )
        self._backfill = backfill.Backfill(settings.prometheus) if settings.prometheus else None
        self._states: dict[Key, TargetState] = {}
        self._saver = StateSaver(self._states, store, scaling.save_seconds)
        self._targets_of: dict[Key, ScaleTargetName] = {}
        """The scale target of every Autoscaler that the API stores."""
        self._with_latency_metric: set[Key] = set()
        """Autoscalers with a metric of the type Latency: ticks parse durations of their targets' requests."""
        self._to_zero: set[Key] = set()
        """Autoscalers with `minReplicas` 0, of the spec or of a schedule."""
        self._ticks = metrics_page.Ticks()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        informers = (self._autoscalers, self._deployments, self._pods, self._profiles, self._leases)
        try:
            async with asyncio.TaskGroup() as group:
                # The start of a replica for a held request must not wait for a handshake with the API.
                group.create_task(self._kube.stay_connected(lambda: bool(self._to_zero)))
                group.create_task(self._loop.run(*informers))
                for informer in informers:
                    await informer.synced.wait()
                if self._store is not None:
                    self._store.retain({Key.of(each) for each in self._autoscalers}, self._namespace)
                group.create_task(self._saver.run())
                group.create_task(Fitting(self._states).run())
                if self._backfill is not None:
                    group.create_task(self._backfill.run())
                if self._pages is not None:
                    group.create_task(self._read_gauges_for_ever())
                    await self._tick_for_ever(self._pages)
        finally:
            self._saver.save_all()
            await self._readings.close()
            if self._pages is not None:
                await self._pages.close()

    async def metrics_page(self) -> str:
        """Return the metrics page."""
        return metrics_page.text(self._states, self._ticks)

    async def _tick_for_ever(self, pages: Pages) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._tick(pages)
            except Exception:  # a malformed page must not stop the ticks of all targets
                log.exception("a tick failed")
            took = loop.time() - began
            self._ticks.took(took)
            # A pause of at least the tick's duration: slow ticks take at most half of the time.
            await asyncio.sleep(max(self._interval() - took, took))

    async def _read_gauges_for_ever(self) -> None:
        """Read gauges apart from the ticks, which use the last values: a source may be slow or not answer."""
        while True:
            try:
                await self._readings.read_gauges(self._targets_of, self._states)
            except Exception:  # a malformed target must not stop the readings of all
                log.exception("a reading of gauges failed")
            await asyncio.sleep(TICK_SECONDS)

    async def _tick(self, pages: Pages) -> None:
        """Read the pages, and queue the targets on which a decision is due."""
        await self._readings.tick(pages, self._targets_of, self._with_latency_metric)
        monotonic_now = clock.monotonic()
        self._targets.retain({Key(*target) for target in self._targets_of.values()})
        for key, target in self._targets_of.items():
            state = self._states.get(key)
            if state is None or self._is_due(state, target, monotonic_now):
                self._loop.add(key)

    def _is_due(self, state: TargetState, target: ScaleTargetName, monotonic_now: float) -> bool:
        """Whether to decide on a target at this tick.

        A count is steady if without a request only a keep-alive, a prewarm or a schedule can change it. A
        steady count is decided on once in `idle_seconds`.
        """
        decision = state.decision
        if decision is None or self._readings.is_busy(target) or state.starts.has_news:
            return True
        config = state.config
        # Each tick checks whether the configured idle time has passed.
        may_go_to_zero = (
            decision.replicas > 0 and config.zero.idle is not None and _lowest_minimum(config) == 0
        )
        # Gauges change without a request.
        has_gauges = any(metric.type in gauges.TYPES for metric in config.metrics)
        is_least = decision.reason == "MinReplicas" or (
            decision.reason == "KeepAlive" and decision.replicas <= 1
        )
        is_steady = (
            decision.reason in ("Idle", "FixedCount", other_writers.UNMANAGED)
            or (is_least and not has_gauges)
        ) and not may_go_to_zero
        return not is_steady or monotonic_now - state.decided_at >= self._settings.idle_seconds

    def _interval(self) -> float:
        """Return the seconds between the starts of two ticks."""
        for state in self._states.values():
            idle = state.config.zero.idle
            if idle is not None and idle < QUICK_BELOW and state.decision and state.decision.replicas:
                return QUICK_SECONDS
        return TICK_SECONDS

    async def reconcile(self, key: Key) -> Result | None:
        """Decide on one target, write its count, and report the decision in the Autoscaler's status."""
        autoscaler = self._autoscalers.get(*key)
        if autoscaler is None or is_deleting(autoscaler):
            if self._states.pop(key, None) is not None and self._store is not None:
                self._store.forget(key)
            return None
        try:
            return await self._reconcile(key, autoscaler)
        except errors.Forbidden as error:
            await self._refuse(key, autoscaler, "Forbidden", str(error))
            raise  # the queue tries again, as no watch shows that a right was granted

    async def _reconcile(self, key: Key, autoscaler: Object) -> Result | None:
        spec = autoscaler["spec"]
        try:
            config = from_spec(spec, self._settings)
            target = await self._scale_target(key, autoscaler)
        except errors.Permanent as error:
            await self._refuse(key, autoscaler, error.reason, str(error))
            return None
        except errors.Invalid as error:
            await self._refuse(key, autoscaler, "InvalidTarget", str(error))
            return None
        except errors.NotFound:
            reference = spec["scaleTargetRef"]
            message = f"there is no {reference.get('kind', 'Deployment')} {reference['name']}"
            await self._refuse(key, autoscaler, "TargetNotFound", message)
            return None
        state = self._state(key, autoscaler)
        state.configure(replace(config, capacity=profiles.capacity(self._profiles, target.object)))
        self._request_backfill(key, autoscaler, target, state)
        await self._size(autoscaler, target, state)
        return None if target.is_ours else Result(targets.READ_SECONDS)  # other targets are not watched

    async def _refuse(self, key: Key, autoscaler: Object, reason: str, message: str) -> None:
        """Report why the target cannot be sized, and drop the last decision, which no longer holds."""
        if key in self._states:
            self._states[key].decision = None
        await self._writer.refuse(autoscaler, reason, message)

    def _request_backfill(
        self, key: Key, autoscaler: Object, target: ScaleTarget, state: TargetState
    ) -> None:
        """Request the backfill of a target without stored state, or whose backfill a restart has ended."""
        if self._backfill is None:
            state.end_backfill()  # of an earlier process; learned loads do not give way to one of weeks later
            return
        if state.is_fixed or state.is_backfill_requested:
            return
        state.is_backfill_requested = True
        query = backfill.query(target.object)
        state.is_backfill_pending = query is not None
        if query is not None:
            emit = partial(self._recorder.emit, autoscaler)
            self._backfill.request(
                backfill.BackfillRequest(
                    key, query, state.config, state.restore_history, state.end_backfill, emit
                )
            )

    async def _scale_target(self, key: Key, autoscaler: Object) -> ScaleTarget:
        """Return the target and its Pods.

        Raises:
            errors.NotFound: the target does not exist.
            errors.Permanent: the target has no scale subresource.
        """
        ref = autoscaler["spec"]["scaleTargetRef"]
        kind = await self._targets.kind(ref.get("apiVersion", "apps/v1"), ref.get("kind", "Deployment"))
        target = Key(key.namespace, ref["name"])
        if kind is not kinds.DEPLOYMENT:
            unwatched = await self._targets.read(kind, target, self._state(key, autoscaler).starts)
            return ScaleTarget(kind, unwatched.object, list(unwatched.pods.values()), is_ours=False)
        deployment = self._deployments.get(*target)
        if deployment is None:
            raise errors.NotFound(404, "NotFound", str(target))
        if names.INFERENCE_LABEL in (deployment["metadata"].get("labels") or {}):
            return ScaleTarget(kind, deployment, self._pods.by_index(_REVISION, str(target)), is_ours=True)
        unwatched = await self._targets.read(kind, target, self._state(key, autoscaler).starts)
        return ScaleTarget(kind, deployment, list(unwatched.pods.values()), is_ours=False)

    def _state(self, key: Key, autoscaler: Object) -> TargetState:
        """Return the state of an Autoscaler; a new one begins with the stored state of an earlier process."""
        state, uid = self._states.get(key), str(autoscaler["metadata"]["uid"])
        if state is None or state.uid != uid:
            saved = self._store.read(key, uid) if self._store is not None else None
            changes = list((autoscaler.get("status") or {}).get("decisions") or [])
            state = self._states[key] = TargetState.begun(uid, saved, changes)
        return state

    async def _size(self, autoscaler: Object, target: ScaleTarget, state: TargetState) -> None:
        """Decide on the count, write it if it differs from the desired one, and report it."""
        now, monotonic_now = clock.now().timestamp(), clock.monotonic()
        key = Key.of(autoscaler)
        desired = observed_count.desired_count(state, target.object, self._kube.field_manager, monotonic_now)
        counts = target.object.get("status") or {}
        state.pods = target.pods
        observed = state.starts.take(desired, counts.get("readyReplicas", 0), target.pods)
        observation = self._readings.observation(
            autoscaler, target, state, observed, now=now, monotonic_now=monotonic_now
        )
        signals = self._readings.sources(key, target, monotonic_now)
        decision = state.decide(observation)
        if not _is_managed(autoscaler):
            least = autoscaler["spec"].get("minReplicas", 1)
            count = await self._writer.count_of_another(autoscaler, max(desired, least))
            decision = guards.of_another_autoscaler(decision, count, least)
        else:
            most = state.bounds(now).most
            if not self._readings.are_known(target, signals, monotonic_now):
                decision = guards.without_readings(decision, desired, most, signals)
            decision = guards.after_a_raise(decision, desired, most, state.raised, monotonic_now)
        state.decision, state.decided_at = decision, monotonic_now
        self._ticks.decided(decision.reason)
        active = await self._active(autoscaler, target, state, monotonic_now)
        state.is_active = active.status == "True"
        if decision.replicas != desired:
            try:
                held = self._readings.held(autoscaler)
                await self._writer.act(autoscaler, target, state, desired, active, held=held)
            except (errors.ApiError, errors.Unavailable) as error:
                state.refused_since = min(state.refused_since, monotonic_now)
                if monotonic_now - state.refused_since >= other_writers.REFUSED_SECONDS:
                    active = other_writers.refused(decision.replicas, error)
                    await self._writer.report(
                        autoscaler, target, state, active, signals, monotonic_now=monotonic_now
                    )
                raise
        else:
            state.reported_dry_run_count = None  # a later decision for that count is reported again
        state.refused_since = math.inf
        if decision.replicas == desired and not counts:
            return  # the target's status has no counts yet; with them the watch queues the target again
        await self._writer.report(autoscaler, target, state, active, signals, monotonic_now=monotonic_now)

    async def _active(
        self, autoscaler: Object, target: ScaleTarget, state: TargetState, monotonic_now: float
    ) -> Condition:
        """Return the condition `ScalingActive`: whether this controller writes the count, or why not."""
        key = Key.of(autoscaler)
        return other_writers.condition(
            state.config.prediction,
            await self._targets.other_scaler(Key(key.namespace, target.name), target.kind),
            is_contested=other_writers.is_contested(state.changes_by_others, monotonic_now),
            is_managed=_is_managed(autoscaler),
            own_scaler=await self._targets.other_scaler(key, kinds.AUTOSCALER),
            has_other_count="replicas" in autoscaler["spec"],
        )

    def _autoscaler_changed(self, before: Object | None, after: Object | None) -> None:
        """Record the target for the ticks, and reconcile after a change of the spec or of `status.demand`.

        This controller writes the other fields of the status itself, and again once others have changed
        them.
        """
        key = Key.of(after or before or {})
        if after is None:
            self._targets_of.pop(key, None)
        else:
            self._targets_of[key] = readings.target_name(after)
        if after is not None and _has_latency(after):
            self._with_latency_metric.add(key)
        else:
            self._with_latency_metric.discard(key)
        if after is not None and _may_be_zero(after):
            self._to_zero.add(key)
        else:
            self._to_zero.discard(key)
        if before is not None and after is not None:
            has_same_spec = before["metadata"].get("generation") == after["metadata"].get("generation")
            old_demand, demand = ((obj.get("status") or {}).get("demand") for obj in (before, after))
            is_unchanged = has_same_spec and demand == old_demand and not is_deleting(after)
            if is_unchanged and not self._is_status_of_another(key, before, after):
                return
        self._loop.add(key)

    def _is_status_of_another(self, key: Key, before: Object, after: Object) -> bool:
        """Whether others have changed the status; False while a report of this controller is in flight."""
        if before.get("status") == after.get("status"):
            return False
        state = self._states.get(key)
        if state is None:  # its target cannot be sized: no decision repeats the report
            return True
        last = state.last_report
        return last is not None and status.fingerprint(after.get("status") or {}) != last.fingerprint

    def _deployment_changed(self, before: Object | None, after: Object | None) -> None:
        for autoscaler in self._autoscalers.by_index(_TARGET, str(Key.of(after or before or {}))):
            self._loop.add(Key.of(autoscaler))

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        """Record the progress of a start; the first tick after the end of the start decides."""
        now = clock.now().timestamp()
        for revision in _revision_of(after or before or {}):
            for autoscaler in self._autoscalers.by_index(_TARGET, revision):
                state = self._states.get(Key.of(autoscaler))
                if state is not None:
                    state.starts.observe(before, after, now)


def _target_of(autoscaler: Object) -> Iterable[str]:
    return [str(Key(autoscaler["metadata"]["namespace"], autoscaler["spec"]["scaleTargetRef"]["name"]))]


def _revision_of(pod: Object) -> Iterable[str]:
    """Return the key of the Deployment of a revision, which has the revision's name."""
    name = (pod["metadata"].get("labels") or {}).get(names.REVISION_LABEL)
    return [str(Key(pod["metadata"]["namespace"], name))] if name else []


def _is_managed(autoscaler: Object) -> bool:
    return bool(autoscaler["spec"].get("managed", True))


def _may_be_zero(autoscaler: Object) -> bool:
    spec = autoscaler["spec"]
    return any(bounds.get("minReplicas") == 0 for bounds in (spec, *(spec.get("schedules") or ())))


def _has_latency(autoscaler: Object) -> bool:
    return any(metric.get("type") == "Latency" for metric in autoscaler["spec"].get("metrics") or ())


def _lowest_minimum(config: PolicyConfig) -> int:
    """Return the lowest minimum of replicas that the spec or a schedule sets."""
    return min([config.min_replicas, *(s.minimum for s in config.schedules if s.minimum is not None)])


@asynccontextmanager
async def prepared(
    data_dir: DataDir,
    settings: ControllerSettings,
    watches: Watches,
    *,
    scaling: AutoscalerSettings = DEFAULTS,
    host: str = PagesSettings.host,
    hold_seconds: float = ActivatorSettings.deadline_seconds,
) -> AsyncIterator[AutoscalerController]:
    """Yield a controller with a client of its own, and serve its metrics page; the caller runs it and
    `watches`.
    """
    async with await connect_eventually(data_dir.kubeconfig, component="autoscaler") as kube:
        gateways, renewals = watches.of(kinds.LEASE, namespace=settings.lease_namespace), leases.Renewals()

        def pages() -> Mapping[str, leases.GatewayPages]:
            live = renewals.live(gateways, clock.now(), clock.monotonic())
            return leases.pages(gateways, live)

        controller = AutoscalerController(
            kube,
            settings,
            watches,
            pages=Pages(pages),
            store=StateStore(data_dir.autoscaler),
            scaling=scaling,
            known_engines=engines.known(data_dir.engines),
            hold_seconds=hold_seconds,
        )
        page, record = {metrics.PATH: controller.metrics_page}, data_dir.metrics("autoscaler")
        async with metrics.served(page, record, host, scaling.metrics_port):
            yield controller
