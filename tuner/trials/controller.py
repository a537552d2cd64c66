"""The Trial controller: measures trials as cores allow, one task each, and removes their replicas.

A measurement that a killed controller left begins again, after its replica is removed. The code that measures
is imported with the first trial: it needs NumPy, whose import costs time and memory.
"""

import asyncio
import importlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from serving import clock, errors
from serving.data_dir import DataDir
from serving.kube import EventRecorder, Key, Kube, Reconciler, Result, Watches, connect_eventually
from serving.objects import Object, is_deleting
from serving.planning.models.version import blocked
from serving.resources import kinds
from serving.resources.kubernetes import pod_resources
from serving.resources.tuning.trial import FINISHED, TrialStatus
from serving.settings import ControllerSettings
from serving.system.isolation.user_ids import UserIds
from tuner.settings import DEFAULTS, TrialSettings, TunerSettings
from tuner.trials import cores, trial_status
from tuner.trials.cores import Cores
from tuner.trials.replicas import TrialReplicas
from tuner.trials.trial_status import Report

RETRY_SECONDS = 1.0
"""Pause between attempts to write a result while the API is away; the API restarts within a second."""
_VERSION = "version"
"""Index of the Trials by the key of their model version."""
_PASSING = (errors.Unavailable, errors.Internal, errors.Conflict)
"""Errors of the API after which the same request may succeed."""
MeasureTrial = Callable[[Object, Cores, TrialReplicas, Report], Awaitable[TrialStatus]]
"""Measures one trial, reports each step and returns the last status; its caller removes the replica."""


class TrialController:
    """Watches Trials and their Deployments and Pods."""

    def __init__(
        self,
        kube: Kube,
        watches: Watches,
        measure: MeasureTrial,
        *,
        machine_cores: Sequence[int],
        config: ControllerSettings,
        settings: TrialSettings,
    ) -> None:
        """`machine_cores` are the numbers of the cores for all trials."""
        self._kube = kube
        self._machine_cores = machine_cores
        self._measure = measure
        self._recorder = EventRecorder(kube, kube.field_manager)
        self._trials = watches.of(kinds.TRIAL)
        self._trials.index(_VERSION, _version_of)
        self._trials.on_change(self._changed)
        self._versions = watches.of(kinds.MODEL_VERSION)
        self._versions.on_change(self._version_changed)
        self._replicas = TrialReplicas(kube, settings, watches)
        # A measurement holds a worker and at least one core; one more worker is for other trials.
        self._loop = Reconciler("trial", self.reconcile, replace(config, workers=len(machine_cores) + 1))
        self._taken: dict[Key, Cores] = {}
        """Cores of each trial from before its measurement until its replica is removed, or exists after
        `removal_seconds`: a replica that cannot be removed must not stop the trials of all experiments."""
        self._measurements: dict[Key, asyncio.Future[TrialStatus]] = {}
        """The running measurements, to cancel those of deleted trials and blocked versions."""
        self._waiting: set[Key] = set()
        """Trials that wait for cores. No younger trial takes cores meanwhile: a trial that needs many cores
        would wait for as long as there are small ones."""
        self._cleared: dict[Key, str] = {}
        """uid of each ended trial whose replica is removed; the cache may be behind its last status."""
        self._reported: dict[Key, Object] = {}
        """Each trial as the API has stored it with the last status of this process."""

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._loop.run(self._trials, self._versions, *self._replicas.informers)

    async def reconcile(self, key: Key) -> Result | None:
        """Measure one trial, or wait for cores, or remove its replica."""
        trial = self._trials.get(*key)
        if trial is None or is_deleting(trial):
            self._stop_waiting(key)
            self._cleared.pop(key, None)
            self._reported.pop(key, None)
            return None  # garbage collection removes its Deployment
        if await self._put_back_status(key, trial) or self._cleared.get(key) == trial["metadata"]["uid"]:
            return None  # the watch brings a written status
        if (trial.get("status") or {}).get("phase") in FINISHED:
            self._stop_waiting(key)
            if self._replicas.has(trial):
                await self._replicas.remove(trial)
            self._cleared[key] = trial["metadata"]["uid"]
            return None
        if message := self._blocked(trial):
            self._stop_waiting(key)
            await self._replicas.remove(trial)
            await self._report_pending(trial, message)
            return None
        limit = pod_resources.total(trial["spec"]["template"]["spec"], "limits", "cpu")
        allotted = None
        if not self._is_behind_another(trial):
            allotted = cores.allot(self._machine_cores, limit, self._taken.values())
        if allotted is None:
            self._waiting.add(key)
            await self._report_pending(trial, "waits for cores")
            return None
        self._taken[key] = allotted
        self._stop_waiting(key)
        try:
            await self._run_trial(key, trial, allotted)
        finally:
            del self._taken[key]
            self._wake()
        if (current := self._trials.get(*key)) is not None and not is_deleting(current):
            await self._put_back_status(key, current)  # changes during the measurement queue nothing
        return None

    async def _report_pending(self, trial: Object, message: str) -> None:
        """Report why the trial has not begun, unless its status has that message already."""
        status = trial.get("status") or {}
        if (status.get("phase"), status.get("message")) != ("Pending", message):
            await self._report(trial, TrialStatus(phase="Pending", message=message))

    async def _run_trial(self, key: Key, trial: Object, allotted: Cores) -> None:
        """Measure the trial, emit an Event of its end, and remove its replica; or stop if it is cancelled."""
        await self._remove(trial)  # of an attempt that ended with a killed controller
        current = self._trials.get(*key)
        if current is None or is_deleting(current) or _are_different(trial, current) or self._blocked(trial):
            self._loop.add(key)  # the trial, or its version, changed during the removal
            return
        measurement = asyncio.ensure_future(self._measure(trial, allotted, self._replicas, self._report))
        self._measurements[key] = measurement
        try:
            await asyncio.wait({measurement})
        finally:
            del self._measurements[key]
            measurement.cancel()
        if measurement.cancelled():  # the trial was deleted, or its version blocked
            await self._remove(trial)
            return
        if (failure := measurement.exception()) is not None:
            await self._remove(trial)
            raise failure
        status = measurement.result()
        await self._recorder.emit(
            trial, status.reason, status.message, "Normal" if status.phase == "Succeeded" else "Warning"
        )
        await self._remove(trial)
        self._cleared[key] = trial["metadata"]["uid"]

    async def _remove(self, trial: Object) -> None:
        """Remove the replica; retried while the API fails, as another trial gets its cores afterwards.

        Raises:
            errors.Temporary: `NotRemoved`, the replica exists after `removal_seconds`; another trial gets its
                cores nevertheless.
        """
        while True:
            try:
                await self._replicas.remove(trial)
            except _PASSING:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _report(self, trial: Object, status: TrialStatus) -> None:
        """Write the status; retried while the API fails, as the measurement must not be lost.

        Raises:
            errors.Conflict: another trial has the name now.
        """
        key = Key.of(trial)
        while True:
            current = self._trials.get(*key) or trial
            if _are_different(trial, current):
                current = trial
            body = trial_status.as_written(current, status, clock.now())
            # A write that is cancelled may have been made: the earlier one is not this process's last then.
            self._reported.pop(key, None)
            try:
                self._reported[key] = await self._kube.replace_status(kinds.TRIAL, current, body)
            except _PASSING:
                if _are_different(trial, self._trials.get(*key)):
                    raise
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _put_back_status(self, key: Key, trial: Object) -> bool:
        """Write the last status of this process again if others have changed it; whether it was written.

        The status is the only record of a measurement, and the search reads it.
        """
        reported = self._reported.get(key)
        # Until the watch has shown the last write, another status is an earlier one of this process.
        if reported is None or _are_different(trial, reported) or not self._trials.has_seen(reported):
            return False
        if trial.get("status") == reported["status"]:
            return False
        self._reported[key] = await self._kube.replace_status(kinds.TRIAL, trial, reported["status"])
        return True

    def _changed(self, before: Object | None, after: Object | None) -> None:
        """Reconcile a changed trial; stop the measurement of one that was deleted or replaced."""
        trial = after or before or {}
        key = Key.of(trial)
        if after is None or is_deleting(trial) or _are_different(trial, before):
            if key in self._measurements:
                self._measurements[key].cancel()
        elif before is not None and key in self._taken:
            return  # a status that this controller wrote during the measurement
        self._loop.add(key)

    def _blocked(self, trial: Object) -> str:
        """Return why a policy forbids the trial's model version; empty if none does."""
        version = self._versions.get(trial["metadata"]["namespace"], trial["spec"].get("modelVersion", ""))
        return "" if version is None else blocked(version)

    def _version_changed(self, before: Object | None, after: Object | None) -> None:
        """Stop the trials of a version that a policy blocks, and begin them anew once none does."""
        message_before = "" if before is None else blocked(before)
        message_now = "" if after is None else blocked(after)
        if message_before == message_now:
            return
        for trial in self._trials.by_index(_VERSION, str(Key.of(after or before or {}))):
            key = Key.of(trial)
            if message_now and key in self._measurements:
                self._measurements[key].cancel()
            self._loop.add(key)

    def _is_behind_another(self, trial: Object) -> bool:
        """Whether an older trial waits for cores; each one fits on the machine once it is the only one."""
        others = filter(None, (self._trials.get(*key) for key in self._waiting))
        return any(_creation_order(other) < _creation_order(trial) for other in others)

    def _stop_waiting(self, key: Key) -> None:
        """Reconcile the other waiting trials if this one has waited: cores may be free for the next one."""
        if key in self._waiting:
            self._waiting.discard(key)
            self._wake()

    def _wake(self) -> None:
        """Reconcile the waiting trials, the oldest first."""
        waiting = filter(None, (self._trials.get(*key) for key in self._waiting))
        for trial in sorted(waiting, key=_creation_order):
            self._loop.add(Key.of(trial))


def _version_of(trial: Object) -> list[str]:
    return [str(Key(trial["metadata"]["namespace"], trial["spec"].get("modelVersion", "")))]


def _creation_order(trial: Object) -> tuple[str, int]:
    return trial["metadata"].get("creationTimestamp", ""), trial["spec"]["number"]


def _are_different(trial: Object, other: Object | None) -> bool:
    """Whether these are two trials, of which one replaced the other under its name."""
    return other is not None and other["metadata"]["uid"] != trial["metadata"]["uid"]


def measuring(kube: Kube, settings: TunerSettings, user_ids: UserIds | None) -> MeasureTrial:
    """Return the function that measures trials; it imports its dependencies with the first trial.

    `user_ids` lease load generators a user; None where this process is not root.
    """

    async def measure(trial: Object, allotted: Cores, replicas: TrialReplicas, report: Report) -> TrialStatus:
        # The import takes long: in a thread it does not block the event loop.
        await asyncio.to_thread(importlib.import_module, "tuner.trials.instruments")
        from tuner.trials import instruments  # noqa: PLC0415 imports NumPy

        return await instruments.measure(
            kube, settings, trial, allotted, replicas=replicas, report=report, user_ids=user_ids
        )

    return measure


@asynccontextmanager
async def prepared(
    data_dir: DataDir, config: ControllerSettings, watches: Watches, settings: TunerSettings = DEFAULTS
) -> AsyncIterator[TrialController]:
    """Yield a controller with a client of its own; its caller runs it, and `watches`."""
    async with await connect_eventually(data_dir.kubeconfig, component="trial") as kube:
        machine_cores = sorted(os.sched_getaffinity(0))
        measure = measuring(kube, settings, UserIds(data_dir.user_ids) if os.geteuid() == 0 else None)
        yield TrialController(
            kube,
            watches,
            measure,
            machine_cores=machine_cores,
            config=config,
            settings=settings.trials,
        )
