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
from serving.resources.tuning.load import Load
from serving.resources.tuning.trial import Reason, TrialSpec, TrialStatus, Usage, Window
from serving.system.network import addresses
from tuner.load.level_search import highest_load
from tuner.load.level_search.state import Finished, MeasureLevel, State
from tuner.load.plan import LoadPlan
from tuner.load.windows import window_summary
from tuner.load.windows.samples import Samples, joined
from tuner.settings import TunerSettings
from tuner.trial_record import LOAD_FAILED, LOAD_RESTARTED, LOAD_RETRIED, UNEXPECTED_ERROR
from tuner.trials import replica_state, trial_deployment, trial_status, usage
from tuner.trials.cores import Cores
from tuner.trials.replica_state import TrialReplicaState
from tuner.trials.replicas import TrialReplicas
from tuner.trials.trial_status import Report

T = TypeVar("T")

log = logging.getLogger(__name__)

_MESSAGE = 300
"""Characters of an unexpected error's message to keep."""


class LoadGenerator(Protocol):
    """A load generator."""

    async def window(self, level: float, seconds: float) -> Samples:
        """Hold this load for some seconds and return its samples.

        Raises:
            errors.Temporary: `LoadFailed`, the generator died.
        """


class TrialInstruments(Protocol):
    """The instruments of a trial."""

    async def plan(self, trial: Object, spec: TrialSpec, url: str) -> LoadPlan:
        """Return the requests to send.

        Raises:
            errors.Permanent: `LoadFailed`, they cannot be made.
            errors.Temporary: `LoadFailed`, the replica gives no metadata now.
        """

    def generator(
        self, url: str, plan: LoadPlan, cores: tuple[int, ...]
    ) -> AbstractAsyncContextManager[LoadGenerator]:
        """Start a load generator on these cores."""

    async def usage(self, pod: Object) -> ContainerUsage | None:
        """Return the usage counters of the replica; None if unknown."""

    def busy_seconds(self, address: str, cores: tuple[int, ...]) -> float | None:
        """Return the seconds that the cores have worked for all processes; None if unknown."""

    async def machine(self, pod: Object) -> str:
        """Return the description of the machine; empty if unknown."""


@dataclass(frozen=True)
class _UsageReading:
    """Usage counters at one moment."""

    container: ContainerUsage | None = None
    busy_seconds: float | None = None
    """Seconds that the replica's cores have worked for all processes."""
    at: float = 0.0


def measurement_limit(load: Load, settings: TunerSettings) -> float:
    """Return the most seconds from a ready replica to the end of its trial, in proportion to the load's."""
    more = highest_load.most_seconds(load, settings.load) / highest_load.most_seconds(Load(), settings.load)
    return settings.trials.most_seconds * max(1.0, more)


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
        self._status = trial_status.begun(trial_deployment.before(self._spec, cores), clock.now())
        self._notes: list[str] = []
        self._search: State = highest_load.begin(
            self._spec.load, self._spec.constraints, settings.load, self._spec.stop_below_throughput
        )
        self._disturbances: list[float] = []
        """Share of the replica's cores that other processes used, for each window."""
        self._level_samples: list[Samples] = []
        """Samples of the last level."""
        self._requests = 0
        self._errors: Counter[str] = Counter()
        """Errors of the failed requests of all windows."""

    async def measure(self) -> TrialStatus:
        """Start the replica, drive it, report, and return the last status; the caller removes the replica.

        Raises:
            errors.SlipwayError: the API failed; any other error ends the trial.
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
                reason, message = "LoadFailed", f"{type(error).__name__}: {error}"[:_MESSAGE]
                self._notes.append(f"{UNEXPECTED_ERROR}: {message}")
        self._notes += trial_deployment.after(self._spec, self._search.windows)
        self._notes += trial_deployment.failures(self._requests, self._errors)
        self._notes += trial_deployment.disturbed(self._disturbances, self._settings.trials.busy_share)
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
        self._status = self._status.model_copy(update=changed)
        await self._store_status(self._trial, self._status)

    async def _measure(self, limit: asyncio.Timeout) -> Finished:
        """Start the replica, which has a limit of its own, and drive it until `limit`, which is set here."""
        await self._report()
        replica = await self._start()
        limit.reschedule(
            asyncio.get_running_loop().time() + measurement_limit(self._spec.load, self._settings)
        )
        pod = self._replicas.pod(self._trial, replica.pod) or {}
        if not_enforced := replica_state.not_enforced(pod):
            self._notes.append(f"LimitNotEnforced: {not_enforced}")
        await self._report(
            phase="WarmingUp",
            machine=await self._instruments.machine(pod),
            start_seconds=round(clock.monotonic() - self._began, 3),
        )
        port = self._spec.template["spec"]["containers"][0]["ports"][0]["containerPort"]
        url = f"http://{addresses.authority(replica.address, port)}"
        return await self._drive(url, await self._plan(url, replica), replica, pod)

    async def _plan(self, url: str, replica: TrialReplicaState) -> LoadPlan:
        """Return the requests; a replica that does not describe its model is asked again, unless it ends."""
        tries = self._settings.trials.load_tries
        for failures in range(tries + 1):
            try:
                return await self._while_alive(self._instruments.plan(self._trial, self._spec, url), replica)
            except errors.Temporary as error:
                if error.reason != LOAD_FAILED:
                    raise
                await self._await_end(replica)
                self._notes.append(f"{LOAD_RETRIED}: {error}")
                if failures == tries:
                    raise errors.Permanent(LOAD_FAILED, str(error)) from error
        raise AssertionError("the last try returns or raises")

    async def _start(self) -> TrialReplicaState:
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
        if replica.state == "ended":
            self._status = self._status.model_copy(update={"restarts": replica.restarts})
            raise errors.Permanent(replica.reason, replica.message)
        return replica

    async def _drive(self, url: str, plan: LoadPlan, replica: TrialReplicaState, pod: Object) -> Finished:
        """Measure until the search for the highest load ends; a generator that dies is restarted."""
        tries = self._settings.trials.load_tries
        for failures in range(tries + 1):
            try:
                async with self._instruments.generator(url, plan, self._cores.generator) as generator:
                    return await self._measure_levels(generator, replica, pod, restarted=failures > 0)
            except errors.Temporary as error:
                if error.reason != LOAD_FAILED:
                    raise
                self._raise_if_ended(self._replicas.state(self._trial, replica.pod))
                log.info("trial %s: %s", self._trial["metadata"]["name"], error)
                if failures == tries:
                    raise errors.Permanent(LOAD_FAILED, str(error)) from error
                self._notes.append(f"{LOAD_RESTARTED}: {error}")
        raise AssertionError("the last try returns or raises")

    async def _measure_levels(
        self, generator: LoadGenerator, replica: TrialReplicaState, pod: Object, *, restarted: bool
    ) -> Finished:
        reading = _UsageReading()
        while isinstance(step := highest_load.next_step(self._search), MeasureLevel):
            warmup = max(step.warmup, float(self._spec.load.warmup_seconds)) if restarted else step.warmup
            if warmup:
                await self._while_alive(generator.window(step.level, warmup), replica)
            if self._status.phase != "Measuring":
                await self._report(phase="Measuring")
            if not step.extends:
                self._level_samples = []
            if not step.extends or reading.container is None:
                reading = await self._read_usage(pod, replica)
            window = await self._measure_window(generator, step, replica, pod, reading)
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
        started = clock.now()
        samples = await self._while_alive(generator.window(step.level, step.seconds), replica)
        self._requests += len(samples.ok)
        self._errors.update(dict(samples.errors))
        if not samples.ok.all():
            await self._await_end(replica)
        after = await self._read_usage(pod, replica)
        self._level_samples.append(samples)
        samples_of_level = joined(self._level_samples)
        window = await asyncio.to_thread(
            window_summary.summary,
            samples_of_level,
            self._spec.constraints,
            self._settings.load,
            self._spec.objective_percentile,
        )
        replica_usage = self._record_usage(before, after)
        return window.model_copy(
            update={
                "start_time": clock.rfc3339(started),
                "usage": replica_usage.model_copy(
                    update={"generator_cpu": round(samples_of_level.generator_cpu, 4)}
                ),
            }
        )

    async def _read_usage(self, pod: Object, replica: TrialReplicaState) -> _UsageReading:
        counters = await self._instruments.usage(pod)
        return _UsageReading(
            counters, self._instruments.busy_seconds(replica.address, self._cores.target), clock.monotonic()
        )

    def _record_usage(self, before: _UsageReading, after: _UsageReading) -> Usage:
        """Return the usage between two readings; note an unknown usage, and record the share of others."""
        if before.container is None or after.container is None:
            if "UsageUnknown" not in self._notes:
                self._notes.append("UsageUnknown")
            return Usage()
        seconds = after.at - before.at
        used = usage.between(before.container, after.container, seconds)
        if before.busy_seconds is not None and after.busy_seconds is not None and not self._cores.shared:
            share = (after.busy_seconds - before.busy_seconds) / seconds - used.cpu_cores
            self._disturbances.append(share / len(self._cores.target))
        return used

    async def _await_end(self, replica: TrialReplicaState) -> None:
        """Wait a moment for the node to report that the replica has ended."""
        try:
            async with asyncio.timeout(self._settings.trials.aftermath_seconds):
                self._raise_if_ended(await self._replicas.until(self._trial, "ended", uid=replica.pod))
        except TimeoutError:
            return

    async def _while_alive(self, work: Coroutine[Any, Any, T], replica: TrialReplicaState) -> T:
        """Await the work, unless the replica ends first."""
        task = asyncio.create_task(work)
        end = asyncio.create_task(self._replicas.until(self._trial, "ended", uid=replica.pod))
        try:
            await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                self._raise_if_ended(end.result())
            return task.result()
        finally:
            end.cancel()
            task.cancel()
            await asyncio.gather(task, end, return_exceptions=True)
