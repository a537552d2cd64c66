"""One Pod: reads what is, asks `pod_life` what to do, does it, reports. Processes outlive it."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime
from typing import Any

from serving import clock, errors
from serving.embedded.node import launch, probing, stopping
from serving.embedded.node.context import Node
from serving.embedded.node.records import PodDirectory, RunDirectory
from serving.embedded.node.reporting import StatusWriter
from serving.embedded.workloads import pod_cgroups, pod_life, pod_probes, pod_rules, pod_status
from serving.embedded.workloads.pod_life import Blocked, Container, Run
from serving.kube.client import Object
from serving.resources import kinds

log = logging.getLogger(__name__)

CONFIG_ERROR = "CreateContainerConfigError"


class PodRunner:
    """Runs one Pod until it has been deleted; `run()` may be cancelled and begun again at any moment."""

    def __init__(self, node: Node, pod: Object) -> None:
        self._node = node
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self._directory = PodDirectory(node.data_dir.pods / self.uid)
        self._writer = StatusWriter(node.kube, pod)
        self._specs = {
            c["name"]: c for kind in ("initContainers", "containers") for c in pod["spec"].get(kind) or []
        }
        self._containers: dict[str, Container] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._gone = asyncio.Event()
        self._address = ""
        self._terminating = False
        self._stopping: set[str] = set()

    def changed(self, pod: Object | None) -> None:
        """The API has another version of the Pod, or (None) has it no more."""
        if pod is None:
            self._gone.set()
        else:
            self.pod = pod
            if pod["metadata"].get("deletionGracePeriodSeconds") == 0:
                self._gone.set()
        self._wake.set()

    @property
    def gone(self) -> bool:
        """Whether the API has it no more."""
        return self._gone.is_set()

    def again(self) -> "PodRunner":
        """Return a fresh runner of the same Pod, which will adopt what runs."""
        fresh = PodRunner(self._node, self.pod)
        if self.gone:
            fresh.changed(None)
        return fresh

    async def run(self) -> None:
        """Run the Pod; returns when it is gone from here and from the API."""
        self._spawn(self._writer.run())
        try:
            await self._bind()
            self._prepare()
            while not (self._gone.is_set() or self.pod["metadata"].get("deletionTimestamp")):
                self._wake.clear()
                steps = self._steps()
                for name in steps.start:
                    await self._start(name)
                steps = self._steps()
                self._report(steps)
                if not steps.start:
                    await self._sleep_until(steps.wake_at)
            await self._terminate()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _bind(self) -> None:
        """Take a Pod that has no node: the API gives no grace to the end of one that is not on a node."""
        meta = self.pod["metadata"]
        while not self.pod["spec"].get("nodeName") and not self._gone.is_set():
            patch = {"metadata": {"uid": self.uid}, "spec": {"nodeName": self._node.settings.name}}
            try:
                self.pod = await self._node.kube.patch(kinds.POD, meta["namespace"], meta["name"], patch)
            except (errors.Unavailable, errors.ApiError) as error:
                log.info("pod %s/%s cannot be bound yet: %s", meta["namespace"], meta["name"], error)
                await self._pause(pod_probes.FIRST_PERIOD)

    # What is

    @property
    def _policy(self) -> pod_life.Policy:
        policy: pod_life.Policy = self.pod["spec"].get("restartPolicy") or "Always"
        return policy

    def _part(self, kind: str) -> list[Container]:
        return [self._containers[c["name"]] for c in self.pod["spec"].get(kind) or []]

    def _steps(self) -> pod_life.Steps:
        return pod_life.next_steps(
            self._policy,
            self._part("initContainers"),
            self._part("containers"),
            clock.now(),
            self._node.settings,
        )

    def _prepare(self) -> None:
        """Read the records of earlier agents, adopt what runs, and give the Pod its address."""
        for name, spec in self._specs.items():
            recorded = self._directory.runs(name)
            runs = [run.read() for run in recorded[-2:]]
            container = Container(name, spec.get("image", ""))
            if runs:
                container = replace(container, run=runs[-1], before=runs[0] if len(runs) > 1 else None)
            self._containers[name] = container
            if runs and runs[-1].exit is None:
                self._adopt(recorded[-1])
        info = self._directory.info
        if "ip" in info:
            self._address = info["ip"]
            self._node.addresses.take(self.uid, self._address)
            return
        ports = [p["containerPort"] for c in self._specs.values() for p in c.get("ports") or []]
        self._address = self._node.addresses.new(self.uid, ports)
        meta = self.pod["metadata"]
        grace = self.pod["spec"].get("terminationGracePeriodSeconds", self._node.settings.grace_seconds)
        self._directory.save(
            {"ip": self._address, "namespace": meta["namespace"], "name": meta["name"], "grace": grace}
        )

    def _adopt(self, run: RunDirectory) -> None:
        """Go on with a run that an earlier agent started: what its probes had found still holds."""
        known = pod_status.container_id(self.uid, run.container, run.index)
        status = self.pod.get("status") or {}
        for said in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
            if said["name"] == run.container and said.get("containerID") == known:
                self._update(run.container, started=bool(said.get("started")), ready=bool(said.get("ready")))
        self._follow(run)

    # What to do

    async def _start(self, name: str) -> None:
        container = self._containers[name]
        index = 0 if container.run is None else container.run.index + 1
        streak = 0 if container.run is None else pod_life.streak_after(container.run, self._node.settings)
        directory = self._directory.run(name, index)
        try:
            self._check()
            async with self._node.launching:
                spec = await launch.specification(
                    self._node, self.pod, self._specs[name], directory, self._address
                )
                handle = await asyncio.to_thread(
                    launch.spawn_recorder, directory, spec, self._node.jail, streak=streak
                )
        except errors.Temporary as error:
            self._block(name, error.reason, str(error))
            return
        except (errors.Unavailable, errors.ApiError, OSError) as error:
            self._block(name, "CreateContainerError", str(error))
            return
        self._update(
            name, run=Run(index, streak), before=container.run, blocked=None, started=False, ready=False
        )
        self._follow(directory, handle)
        await asyncio.to_thread(self._directory.forget_before, name, index)

    def _check(self) -> None:
        causes = pod_rules.refusals(
            self.pod,
            self._node.images,
            mounts=self._node.jail is not None,
            protected=self._node.jail.keep if self._node.jail else (),
            data=str(self._node.data_dir.root.resolve()),
        )
        if causes:
            raise errors.Temporary(CONFIG_ERROR, "; ".join(f"{c.field}: {c.message}" for c in causes))

    def _block(self, name: str, reason: str, message: str) -> None:
        before = self._containers[name].blocked
        attempts = before.attempts + 1 if before else 1
        until = pod_life.blocked_until(attempts, clock.now(), self._node.settings)
        self._update(name, blocked=Blocked(reason, message, until, attempts))
        if before is None or before.message != message:
            self._event(reason, message, warning=True)

    def _follow(self, run: RunDirectory, handle: int | None = None) -> None:
        self._spawn(self._watch(run, handle))
        for probe in pod_probes.parse(self._specs[run.container]):
            self._spawn(self._probe(run, probe))

    async def _watch(self, run: RunDirectory, handle: int | None) -> None:
        """Keep `run` of the container true until it has ended."""
        name = run.container
        watching = asyncio.ensure_future(stopping.ended(run, handle))
        try:
            while not watching.done() and run.identities() is None:
                await asyncio.wait({watching}, timeout=stopping.POLL_SECONDS)
            if not watching.done():
                self._running(name, run)
            begun = await watching
        finally:
            watching.cancel()
        container = self._containers[name]
        if not begun:
            self._update(name, run=container.before, before=None)
            return
        ended = run.read()
        self._update(name, run=ended, started=False, ready=False)
        if ended.exit is not None and ended.exit.code != 0:
            told = ended.exit.message or f"exit code {ended.exit.code}"
            self._event(ended.exit.reason, f"container {name}: {told}", warning=True)

    def _running(self, name: str, run: RunDirectory) -> None:
        container = self._containers[name]
        fresh = container.run is None or container.run.started_at is None
        kinds_of = {probe.kind for probe in pod_probes.parse(self._specs[name])}
        started = container.started or "startup" not in kinds_of
        ready = container.ready or (started and "readiness" not in kinds_of)
        self._update(name, run=run.read(), started=started, ready=ready)
        if fresh:
            self._event("Started", f"started container {name} at {self._address}")

    # Probes

    async def _probe(self, run: RunDirectory, probe: pod_probes.Probe) -> None:
        name = run.container
        while (
            not (container := self._containers[name]).running
            or container.run is None
            or not (container.run.started_at and (container.started or probe.kind == "startup"))
        ):
            if run.exit() is not None or self._terminating:
                return
            await asyncio.sleep(pod_probes.FIRST_PERIOD / 4)
        verdict = pod_probes.Verdict(
            {"startup": container.started, "readiness": container.ready}.get(probe.kind) or None
        )
        if probe.kind == "startup" and container.started:
            return
        passed = (clock.now() - container.run.started_at).total_seconds()
        await asyncio.sleep(max(probe.initial_delay - passed, 0))
        while self._containers[name].running and name not in self._stopping and not self._terminating:
            found = run.identities()
            if found is None:
                return
            problem = await probing.ask(self._target(name, found[1].pid), probe.action, probe.timeout)
            if not self._containers[name].running:
                return
            before, verdict = verdict, pod_probes.judge(probe, verdict, not problem, clock.monotonic())
            if self._judged(run, probe, before, verdict, problem):
                return
            await asyncio.sleep(pod_probes.next_delay(probe, verdict))

    def _judged(
        self,
        run: RunDirectory,
        probe: pod_probes.Probe,
        before: pod_probes.Verdict,
        verdict: pod_probes.Verdict,
        problem: str,
    ) -> bool:
        """Act on what a probe has found; returns whether it need not be asked again."""
        name = run.container
        if verdict.ok is not before.ok:
            if probe.kind == "readiness":
                self._update(name, ready=verdict.ok is True)
            elif probe.kind == "startup" and verdict.ok:
                has_readiness = any(p.kind == "readiness" for p in pod_probes.parse(self._specs[name]))
                self._update(name, started=True, ready=not has_readiness)
            if verdict.ok is False:
                self._event("Unhealthy", f"{probe.kind} probe of {name} failed: {problem}", warning=True)
                if probe.kind != "readiness":
                    self._spawn(self._kill(run, f"container {name} failed its {probe.kind} probe"))
                    return True
        return probe.kind == "startup" and verdict.ok is True

    async def _kill(self, run: RunDirectory, why: str) -> None:
        self._event("Killing", why)
        self._stopping.add(run.container)
        try:
            await stopping.stop([run], self._grace())
        finally:
            self._stopping.discard(run.container)

    # The end

    def _grace(self) -> float:
        grace = self.pod["metadata"].get("deletionGracePeriodSeconds")
        if grace is None:
            grace = self.pod["spec"].get("terminationGracePeriodSeconds", self._node.settings.grace_seconds)
        return float(grace)

    async def _terminate(self) -> None:
        """Leave the EndpointSlices, drain, SIGTERM, grace, SIGKILL; then forget the Pod, here and in the API."""
        served = pod_status.ready(self._part("containers"), terminating=False) and any(
            c.get("ports") for c in self._specs.values()
        )
        self._terminating = True
        self._report(pod_life.Steps())
        if not self._gone.is_set() and any(c.running for c in self._containers.values()):
            self._event("Killing", "stopping the Pod")
            if served:
                await self._pause(self._node.settings.drain_seconds)
            hooks = [self._pre_stop(name) for name, c in self._containers.items() if c.running]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*hooks), self._grace() or None)
        grace = 0.0 if self._gone.is_set() else self._grace()
        await stopping.remove(self._directory, self._node.cgroups, grace, self._gone)
        self._node.addresses.release(self._address)
        await self._finalize()

    async def _pre_stop(self, name: str) -> None:
        action = (self._specs[name].get("lifecycle") or {}).get("preStop") or {}
        if "sleep" in action:
            await self._pause(float(action["sleep"].get("seconds") or 0))
        elif action:
            run = self._containers[name].run
            found = self._directory.run(name, run.index).identities() if run else None
            if found:
                problem = await probing.ask(self._target(name, found[1].pid), action, self._grace())
                if problem:
                    self._event("FailedPreStopHook", f"container {name}: {problem}", warning=True)

    async def _finalize(self) -> None:
        meta = self.pod["metadata"]
        delay = 0.1
        while not self._gone.is_set():
            try:
                await self._node.kube.delete(
                    kinds.POD, meta["namespace"], meta["name"], uid=self.uid, grace_seconds=0
                )
            except (errors.Unavailable, errors.ApiError) as error:
                log.info("pod %s/%s cannot be finalized yet: %s", meta["namespace"], meta["name"], error)
                await self._pause(delay)
                delay = min(delay * 2, 5.0)
            else:
                return

    # Small things

    def _target(self, name: str, pid: int) -> launch.Target:
        return launch.Target(self._node, self.uid, self._specs[name], self._address, pid)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), seconds)

    async def _sleep_until(self, moment: datetime | None) -> None:
        seconds = None if moment is None else max((moment - clock.now()).total_seconds(), 0.001)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    def _update(self, name: str, **changes: Any) -> None:
        self._containers[name] = replace(self._containers[name], **changes)
        self._wake.set()

    def _report(self, steps: pod_life.Steps) -> None:
        limits = [pod_cgroups.limits(spec) for spec in self._specs.values()]
        self._writer.say(
            pod_status.status(
                self.uid,
                self._policy,
                self._part("initContainers"),
                self._part("containers"),
                ip=self._address,
                now=clock.now(),
                old=self._writer.latest,
                terminating=self._terminating,
                backing_off=steps.backing_off,
                not_enforced=pod_cgroups.not_enforced(limits, self._node.cgroups.missing),
                limited=any(limit != pod_cgroups.Limits() for limit in limits),
            )
        )

    def _event(self, reason: str, message: str, *, warning: bool = False) -> None:
        self._spawn(self._node.events.emit(self.pod, reason, message, "Warning" if warning else "Normal"))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("pod %s: a task failed", self.pod["metadata"]["name"], exc_info=error)
