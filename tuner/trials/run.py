"""The measurement of one trial: starts its replica, drives and watches it, and reports each step.

A trial without a result raises `errors.Permanent` with the Trial's reason, which `TrialRun.measure` turns
into a status.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from serving import clock, errors
from serving.objects import Object
from serving.resources.formats import duration
from serving.resources.formats.cadvisor import ContainerUsage
from serving.resources.tuning.load import ExperimentLoad
from serving.resources.tuning.trial import Reason, TrialSpec, TrialStatus, Usage, Window
from serving.system.network import addresses
from tuner.load.level_search import highest_load
from tuner.load.level_search.state import Finished, MeasureLevel, State
from tuner.load.plan import LoadPlan
from tuner.load.windows import window_summary
from tuner.load.windows.samples import Samples, joined
from tuner.settings import TunerSettings
from tuner.trial_record import LOAD_FAILED, LOAD_RESTARTED_NOTE, LOAD_RETRIED_NOTE, UNEXPECTED_ERROR_NOTE
from tuner.trials import replica_state, trial_deployment, trial_status, usage
from tuner.trials.cores import Cores
from tuner.trials.replica_state import TrialReplicaState
from tuner.trials.replicas import TrialReplicas
from tuner.trials.trial_status import Report

T = TypeVar("T")

log = logging.getLogger(__name__)

LOAD_TRIES = 2
"""Restarts of a generator, and further questions to a replica that does not describe its model, within one
trial: either may fail once or twice by bad luck, and then it is the load or the replica."""
_MOST_CHARACTERS = 300
"""Characters of an unexpected error's message to keep."""


class LoadGenerator(Protocol):
    """A running load generator."""

    async def window(self, level: float, seconds: float) -> Samples:
        """Hold this level (users, or requests per second) for some seconds and return its samples.

        Raises:
            errors.Temporary: `LoadFailed`, the generator died.
        """


class TrialInstruments(Protocol):
    """The instruments of a trial; `url` is scheme, host and port of its replica."""

    async def plan(self, trial: Object, spec: TrialSpec, url: str) -> LoadPlan:
        """Return the requests to send.

        Raises:
            errors.Permanent: `LoadFailed`, they cannot be made.
            errors.Temporary: `LoadFailed`, the replica gives no metadata now.
        """

    def generator(
        self, url: str, plan: LoadPlan, cores: tuple[int, ...]
    ) -> AbstractAsyncContextManager[LoadGenerator]:
        """Return a load generator on these cores, which runs within the context."""

    async def usage(self, pod: Object) -> ContainerUsage | None:
        """Return the usage counters of the replica; None if unknown."""

    def busy_seconds(self, address: str, cores: tuple[int, ...]) -> float | None:
        """Return the seconds that these cores have worked since boot, for all processes; None if unknown.

        `address` is the replica's: the cores of another machine are unknown.
        """

    async def machine(self, pod: Object) -> str:
        """Return processor, cores and GPU of the replica's machine as text; empty if unknown."""


@dataclass(frozen=True)
class _UsageReading:
    """Usage counters at one moment."""

    container: ContainerUsage | None = None
    """Of the replica; None if unknown."""
    busy_seconds: float | None = None
    """Seconds that the replica's cores have worked since boot, for all processes; None if unknown."""
    at: float = 0.0
    """Seconds of the monotonic clock."""


def measurement_limit(load: ExperimentLoad, settings: TunerSettings) -> float:
    """Return the most seconds from a ready replica to the end of its trial.

    It is `trials.most_seconds` for the default load, and more in proportion for a load whose search may take
    longer.
    """
    default_search_seconds = highest_load.most_seconds(ExperimentLoad(), settings.load)
    search_seconds = highest_load.most_seconds(load, settings.load)
    return settings.trials.most_seconds * max(1.0, search_seconds / default_search_seconds)


class TrialRun:
    """One attempt to measure a trial."""

    def __init__(
        self,
        trial: Object,
        cores: Cores,
        *,
        replicas: TrialReplicas,
        instruments: TrialInstruments,
        report: Report,
        settings: TunerSettings,
    ) -> None:
        self._trial = trial
        self._spec = TrialSpec.model_validate(trial["spec"])
        self._cores = cores
        self._replicas = replicas
        self._instruments = instruments
        self._store_status = report
        self._settings = settings
        self._began = clock.monotonic()
        self._status = trial_status.begun(trial_deployment.notes_before(self._spec, cores), clock.now())
        self._notes: list[str] = []
        """Notes that the last status adds to those of `_status`."""
        self._search: State = highest_load.begin(
            self._spec.load, self._spec.constraints, settings.load, self._spec.stop_below_throughput
        )
        self._disturbances: dict[int, float] = {}
        """Share of the time of the replica's cores that other processes used, by the number of the window."""
        self._window_started = clock.now()
        """Start of the last window; an extension does not change it."""
        self._window_samples: list[Samples] = []
        """Samples of the last window, one entry for it and one for each of its extensions."""
        self._requests = 0
        """Requests of all windows, failed ones included."""
        self._errors: Counter[str] = Counter()
        """Number of failed requests of all windows by the text of their error."""

    async def measure(self) -> TrialStatus:
        """Start the replica, drive it, report, and return the last status; the caller removes the replica.

        Raises:
            errors.SlipwayError: the API failed. Permanent and errors of other types end the trial instead.
        """
        limit = asyncio.timeout(None)
        result: Window | None = None
        try:
            async with limit:
                finished = await self._measure(limit)
            reason, message, result = finished.reason, finished.message, finished.result
            self._notes += finished.notes
        except errors.Permanent as error:
            reason, message = cast("Reason", error.reason), str(error)
        except errors.SlipwayError:
            raise
        except Exception as error:
            if limit.expired():
                seconds = measurement_limit(self._spec.load, self._settings)
                reason, message = "TimedOut", f"not done after {seconds:.3g} s of load"
            else:
                log.exception("trial %s", self._trial["metadata"]["name"])
                reason, message = "LoadFailed", f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS]
                self._notes.append(f"{UNEXPECTED_ERROR_NOTE}: {message}")
        self._notes += trial_deployment.notes_after(self._spec, self._search.windows)
        self._notes += trial_deployment.notes_on_failures(self._requests, self._errors)
        self._notes += trial_deployment.notes_on_disturbance(
            self._disturbances.values(), self._settings.trials.busy_share
        )
        self._status = trial_status.ended(
            self._status,
            reason,
            message,
            result=result,
            notes=self._notes,
            seconds=clock.monotonic() - self._began,
            now=clock.now(),
        )
        await self._report()
        return self._status

    async def _report(self, **changed: Any) -> None:
        """Change these fields of the status, and write it."""
        self._status = self._status.model_copy(update=changed)
        await self._store_status(self._trial, self._status)

    async def _measure(self, limit: asyncio.Timeout) -> Finished:
        """Start the replica, and drive it until the search ends.

        `limit` is set once the replica is ready: the start has a limit of its own, `progress_deadline`.
        """
        await self._report()
        replica = await self._start()
        limit.reschedule(
            asyncio.get_running_loop().time() + measurement_limit(self._spec.load, self._settings)
        )
        pod = self._replicas.pod(self._trial, replica.pod_uid) or {}
        if not_enforced := replica_state.not_enforced(pod):
            self._notes.append(f"LimitNotEnforced: {not_enforced}")
        await self._report(
            phase="WarmingUp",
            machine=await self._instruments.machine(pod),
            start_seconds=round(clock.monotonic() - self._began, 3),
        )
        # The predictor's container is rendered first, and in it the port of its server.
        port = self._spec.template["spec"]["containers"][0]["ports"][0]["containerPort"]
        url = f"http://{addresses.authority(replica.address, port)}"
        return await self._drive(url, await self._plan(url, replica), replica, pod)

    async def _plan(self, url: str, replica: TrialReplicaState) -> LoadPlan:
        """Return the requests; a replica that does not describe its model is asked again, unless it ends."""
        for failures in range(LOAD_TRIES + 1):
            try:
                return await self._while_alive(self._instruments.plan(self._trial, self._spec, url), replica)
            except errors.Temporary as error:
                if error.reason != LOAD_FAILED:
                    raise
                await self._await_end(replica)
                self._notes.append(f"{LOAD_RETRIED_NOTE}: {error}")
                if failures == LOAD_TRIES:
                    raise errors.Permanent(LOAD_FAILED, str(error)) from error
        raise AssertionError("the last try returns or raises")

    async def _start(self) -> TrialReplicaState:
        """Start the replica, and return it once it is ready.

        Raises:
            errors.Permanent: `NotReady`, or the reason why the replica ended.
        """
        await self._replicas.start(self._trial, self._spec, self._cores)
        try:
            async with asyncio.timeout(duration.seconds(self._spec.progress_deadline)):
                replica = await self._ready_or_ended()
        except TimeoutError as error:
            replica = self._replicas.state(self._trial)
            if replica.state == "starting":
                message = f"not ready after {self._spec.progress_deadline}: {replica.message}"
                raise errors.Permanent("NotReady", message) from error
        return self._raise_if_ended(replica)

    async def _ready_or_ended(self) -> TrialReplicaState:
        """Return the replica once it is ready or has ended; a refusal of its Pod counts only if it lasts."""
        while True:
            replica = await self._replicas.until(self._trial, "ready", "ended")
            if replica.reason != "Refused":
                return replica
            try:
                async with asyncio.timeout(self._settings.trials.refusal_seconds):
                    await self._replicas.until(self._trial, "starting", "ready")
            except TimeoutError:
                return self._replicas.state(self._trial)

    def _raise_if_ended(self, replica: TrialReplicaState) -> TrialReplicaState:
        """Return the replica; one that has ended raises Permanent with the reason of its end."""
        if replica.state == "ended":
            self._status = self._status.model_copy(update={"restarts": replica.restarts})
            raise errors.Permanent(replica.reason, replica.message)
        return replica

    async def _drive(self, url: str, plan: LoadPlan, replica: TrialReplicaState, pod: Object) -> Finished:
        """Measure until the search for the highest load ends; a generator that dies is restarted."""
        for failures in range(LOAD_TRIES + 1):
            try:
                async with self._instruments.generator(url, plan, self._cores.generator) as generator:
                    return await self._measure_levels(generator, replica, pod, restarted=failures > 0)
            except errors.Temporary as error:
                if error.reason != LOAD_FAILED:
                    raise
                self._raise_if_ended(self._replicas.state(self._trial, replica.pod_uid))
                log.info("trial %s: %s", self._trial["metadata"]["name"], error)
                if failures == LOAD_TRIES:
                    raise errors.Permanent(LOAD_FAILED, str(error)) from error
                self._notes.append(f"{LOAD_RESTARTED_NOTE}: {error}")
        raise AssertionError("the last try returns or raises")

    async def _measure_levels(
        self, generator: LoadGenerator, replica: TrialReplicaState, pod: Object, *, restarted: bool
    ) -> Finished:
        """Measure windows until the search ends; a restarted generator needs a whole warm-up.

        A step that extends the last window replaces it by a window over both: its samples are those of both
        steps, and its usage counts from the start of the first one, or from a restart of the generator.
        """
        at_window_start = _UsageReading()
        while isinstance(step := highest_load.next_step(self._search), MeasureLevel):
            warmup = max(step.warmup, float(self._spec.load.warmup_seconds)) if restarted else step.warmup
            if warmup:
                await self._while_alive(generator.window(step.level, warmup), replica)
            if self._status.phase != "Measuring":
                await self._report(phase="Measuring")
            if not step.extends:
                self._window_started, self._window_samples = clock.now(), []
            if not step.extends or at_window_start.container is None:
                at_window_start = await self._read_usage(pod, replica)
            window = await self._measure_window(generator, step, replica, pod, at_window_start)
            self._search = highest_load.after(self._search, window, extends=step.extends)
            await self._report(windows=list(self._search.windows))
            restarted = False
        return step

    async def _measure_window(
        self,
        generator: LoadGenerator,
        step: MeasureLevel,
        replica: TrialReplicaState,
        pod: Object,
        before: _UsageReading,
    ) -> Window:
        """Measure one step, and return the window that it begins or extends, whose usage `before` begins."""
        samples = await self._while_alive(generator.window(step.level, step.seconds), replica)
        self._requests += len(samples.ok)
        self._errors.update(dict(samples.errors))
        if not samples.ok.all():
            await self._await_end(replica)
        after = await self._read_usage(pod, replica)
        self._window_samples.append(samples)
        window_samples = joined(self._window_samples)
        window = await asyncio.to_thread(
            window_summary.summary,
            window_samples,
            self._spec.constraints,
            self._spec.objective_percentile,
        )
        number = len(self._search.windows) - (1 if step.extends else 0)
        replica_usage = self._record_usage(number, before, after)
        return window.model_copy(
            update={
                "start_time": clock.rfc3339(self._window_started),
                "usage": replica_usage.model_copy(
                    update={"generator_cpu": round(window_samples.generator_cpu, 4)}
                ),
            }
        )

    async def _read_usage(self, pod: Object, replica: TrialReplicaState) -> _UsageReading:
        container = await self._instruments.usage(pod)
        busy_seconds = self._instruments.busy_seconds(replica.address, self._cores.replica)
        return _UsageReading(container, busy_seconds, clock.monotonic())

    def _record_usage(self, window: int, before: _UsageReading, after: _UsageReading) -> Usage:
        """Return the usage between two readings, and record the share of the cores that others used.

        An unknown usage is noted once. `window` is the number of the window between the readings; the share
        of an extended window replaces that of the window before its extension.
        """
        if before.container is None or after.container is None:
            if "UsageUnknown" not in self._notes:
                self._notes.append("UsageUnknown")
            return Usage()
        seconds = after.at - before.at
        used = usage.between(before.container, after.container, seconds)
        if before.busy_seconds is not None and after.busy_seconds is not None and not self._cores.shared:
            busy_cores = (after.busy_seconds - before.busy_seconds) / seconds
            used_by_others = busy_cores - used.cpu_cores
            self._disturbances[window] = used_by_others / len(self._cores.replica)
        return used

    async def _await_end(self, replica: TrialReplicaState) -> None:
        """Wait a moment for the node to report that the replica has ended; if it does, raise the reason."""
        try:
            async with asyncio.timeout(self._settings.trials.aftermath_seconds):
                self._raise_if_ended(
                    await self._replicas.until(self._trial, "ended", pod_uid=replica.pod_uid)
                )
        except TimeoutError:
            return

    async def _while_alive(self, work: Coroutine[Any, Any, T], replica: TrialReplicaState) -> T:
        """Return the result of the work; if the replica ends first, cancel the work and raise the reason."""
        task = asyncio.create_task(work)
        end = asyncio.create_task(self._replicas.until(self._trial, "ended", pod_uid=replica.pod_uid))
        try:
            await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                self._raise_if_ended(end.result())
            return task.result()
        finally:
            end.cancel()
            task.cancel()
            await asyncio.gather(task, end, return_exceptions=True)
