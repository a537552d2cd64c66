"""The Trial controller: runs the trials that have cores, one task each, and leaves nothing of one that is over.

A trial that was being measured when its controller was killed begins anew: what it had deployed is removed first.
It knows nothing of how a trial is measured; that is imported with the first one, as it takes NumPy.
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
from serving.objects import Object
from serving.resources import kinds
from serving.resources.trial import FINISHED, TrialStatus
from serving.settings import ControllerSettings
from tuner.settings import DEFAULTS, TrialSettings, TunerSettings
from tuner.trials import cores, trial_status
from tuner.trials.cores import Cores
from tuner.trials.replicas import Replicas
from tuner.trials.trial_status import Report

Measure = Callable[[Object, Cores, Replicas, Report], Awaitable[TrialStatus]]
"""Measures one trial and reports each step; the replica is left for the caller to remove."""


class TrialController:
    """Watches Trials, and the Deployments and Pods that it makes for them."""

    def __init__(
        self,
        kube: Kube,
        watches: Watches,
        measure: Measure,
        *,
        machine: Sequence[int],
        config: ControllerSettings,
        settings: TrialSettings,
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._machine = machine
        self._measure = measure
        self._recorder = EventRecorder(kube, kube.field_manager)
        self._trials = watches.of(kinds.TRIAL)
        self._trials.on_change(self._changed)
        self._replicas = Replicas(kube, settings, watches)
        # Each trial holds a worker while it is measured; another is for those that are over.
        self._loop = Reconciler("trial", self.reconcile, replace(config, workers=len(machine) + 1))
        self._taken: dict[Key, Cores] = {}
        self._work: dict[Key, asyncio.Future[TrialStatus]] = {}
        self._waiting: set[Key] = set()
        self._cleared: dict[Key, str] = {}
        """uid of a trial that is over and of which nothing is left; the cache may be behind its last status."""

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._loop.run(self._trials, *self._replicas.informers)

    async def reconcile(self, key: Key) -> Result | None:
        """Measure one trial, or wait for cores, or take away what is left of it."""
        trial = self._trials.get(*key)
        if trial is None or trial["metadata"].get("deletionTimestamp"):
            self._waiting.discard(key)
            self._cleared.pop(key, None)
            return None  # what it owns goes with it
        if self._cleared.get(key) == trial["metadata"]["uid"]:
            return None
        if (trial.get("status") or {}).get("phase") in FINISHED:
            if self._replicas.has(trial):
                await self._replicas.remove(trial)
            self._cleared[key] = trial["metadata"]["uid"]
            return None
        allotted = cores.allot(self._machine, cores.wanted(trial["spec"]["template"]), self._taken.values())
        if allotted is None:
            self._waiting.add(key)
            if "status" not in trial:
                await self._report(trial, TrialStatus(phase="Pending", message="waits for cores"))
            return None
        self._taken[key] = allotted
        try:
            await self._one(key, trial, allotted)
        finally:
            del self._taken[key]
            self._wake()
        return None

    async def _one(self, key: Key, trial: Object, allotted: Cores) -> None:
        await self._replicas.remove(trial)  # of a try that was killed
        work = asyncio.ensure_future(self._measure(trial, allotted, self._replicas, self._report))
        self._work[key] = work
        try:
            await asyncio.wait({work})
        finally:
            del self._work[key]
            work.cancel()
        if work.cancelled():  # somebody deleted the trial
            await self._replicas.remove(trial)
            return
        status = work.result()
        await self._recorder.emit(
            trial, status.reason, status.message, "Normal" if status.phase == "Succeeded" else "Warning"
        )
        await self._replicas.remove(trial)
        self._cleared[key] = trial["metadata"]["uid"]

    async def _report(self, trial: Object, status: TrialStatus) -> None:
        """Write the status; what was measured is not lost because the API is away for a while."""
        while True:
            body = trial_status.as_written(self._trials.get(*Key.of(trial)) or trial, status, clock.now())
            try:
                await self._kube.apply_status(kinds.TRIAL, trial, body)
            except errors.Unavailable:
                await asyncio.sleep(self._settings.retry_seconds)
            else:
                return

    def _changed(self, before: Object | None, after: Object | None) -> None:
        trial = after or before or {}
        key = Key.of(trial)
        if after is None or trial["metadata"].get("deletionTimestamp"):
            if key in self._work:
                self._work[key].cancel()
        elif before is not None and key in self._taken:
            return  # what is said while it is measured is its own
        self._loop.add(key)

    def _wake(self) -> None:
        """Let the oldest of those that wait look for cores first."""
        waiting, self._waiting = self._waiting, set()
        found = [trial for trial in map(self._cached, waiting) if trial is not None]
        for trial in sorted(found, key=_age):
            self._loop.add(Key.of(trial))

    def _cached(self, key: Key) -> Object | None:
        return self._trials.get(*key)


def _age(trial: Object) -> tuple[str, int]:
    return trial["metadata"].get("creationTimestamp", ""), trial["spec"]["number"]


def measuring(kube: Kube, settings: TunerSettings) -> Measure:
    """Return what measures trials for real; what it takes is imported with the first one."""

    async def measure(trial: Object, allotted: Cores, replicas: Replicas, report: Report) -> TrialStatus:
        await asyncio.to_thread(importlib.import_module, "tuner.trials.instruments")
        from tuner.trials import instruments  # noqa: PLC0415 as the docstring says

        return await instruments.measure(kube, settings, trial, allotted, replicas=replicas, report=report)

    return measure


@asynccontextmanager
async def prepared(
    data_dir: DataDir, config: ControllerSettings, watches: Watches, settings: TunerSettings = DEFAULTS
) -> AsyncIterator[TrialController]:
    """Give a controller with a client of its own; it runs once `watches` do."""
    async with await connect_eventually(data_dir.kubeconfig, component="trial") as kube:
        machine = sorted(os.sched_getaffinity(0))
        measure = measuring(kube, settings)
        yield TrialController(
            kube, watches, measure, machine=machine, config=config, settings=settings.trials
        )
