"""Runs one Pod: reads its containers' records, starts the containers of the plan, reports the status.

The processes outlive the runner: a restarted agent adopts them.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Coroutine, Mapping
from datetime import datetime
from typing import Any

from serving import clock, errors
from serving.embedded.kubelet.container import launch, stopping, termination_message
from serving.embedded.kubelet.container.exec_command import RunningContainer
from serving.embedded.kubelet.container.launch import Started
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.pod import lifecycle, start_trace, status_writer, termination
from serving.embedded.kubelet.pod import status as pod_status
from serving.embedded.kubelet.pod.container_monitor import ContainerMonitor
from serving.embedded.kubelet.pod.containers import Containers
from serving.embedded.kubelet.pod.lifecycle import Blocked
from serving.embedded.kubelet.pod.status_writer import StatusWriter
from serving.embedded.kubelet.records import PodDirectory, RunDirectory
from serving.embedded.kubelet.resources import cgroup_limits
from serving.embedded.pod_spec import gpu_limits, qos, resource_limits, rules, tcp_ports
from serving.embedded.pod_spec.container_id import container_id
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.objects import Object, is_deleting
from serving.resources import kinds
from serving.resources.kubernetes import container_statuses, pod_phases
from serving.resources.kubernetes.events import EventToEmit

log = logging.getLogger(__name__)

CONFIG_ERROR = "CreateContainerConfigError"
BIND_RETRY_SECONDS = 0.1
RESERVE_RETRY_SECONDS = 1.0
"""Between tries to reserve ports that another process has bound."""


class PodRunner:
    """Runs one Pod until it has been deleted; `run()` may be cancelled and repeated at any moment."""

    def __init__(self, node: Node, pod: Object) -> None:
        self.pod = pod
        """The newest version of the object that the agent knows."""
        self._node = node
        self._uid: str = pod["metadata"]["uid"]
        self._directory = PodDirectory(node.data_dir.pods / self._uid)
        self._containers = Containers(pod["spec"])
        self._writer = StatusWriter(node.kube, pod)
        self._tasks: set[asyncio.Task[None]] = set()
        self._gone = asyncio.Event()
        """Set when the Pod no longer exists in the API, or was deleted without a grace period: its end
        need not wait."""
        self._shortened = asyncio.Event()
        """Set when another deletion has shortened the grace period, or by `_gone`: the end begins at once."""
        self._hurry = asyncio.Event()
        """Set when the shortened grace period is over, or by `_gone`: hooks and programs are ended."""
        self._deleted = False
        self._identity = PodIdentity("", None)
        """Empty until `run` has assigned one."""
        self._seen_at = clock.now()
        """The beginning of the first start of each container."""
        self._starts: dict[str, start_trace.NodeStart] = {}
        """Starts by this runner of containers that are not ready yet."""
        self._trace: start_trace.StartTrace | None = None
        """The phases of the last start by this runner, for the Pod's status."""
        self._not_limited: dict[str, Mapping[str, str]] = {}
        """Of the last runs, by container: why a resource could not be limited."""

    @property
    def gone(self) -> bool:
        """Whether the Pod no longer exists in the API, where finalizers may keep a Pod that has ended."""
        return self._deleted

    def changed(self, pod: Object | None) -> None:
        """Take over another version of the Pod; None when it no longer exists in the API."""
        if pod is None:
            self._deleted = True
            self._end_at_once()
        else:
            before = self._grace_seconds() if is_deleting(self.pod) else 0.0
            self.pod = pod
            if pod["metadata"].get("deletionGracePeriodSeconds") == 0:
                self._end_at_once()
            elif self._grace_seconds() < before:
                self._shortened.set()
                asyncio.get_running_loop().call_later(self._grace_seconds(), self._hurry.set)
        self._containers.changed.set()

    def _end_at_once(self) -> None:
        for event in (self._gone, self._shortened, self._hurry):
            event.set()

    def _must_end(self) -> bool:
        """Whether the Pod is being deleted, is bound to another node, or no longer exists in the API.

        There is no other node: `node.name` has changed, or the name is wrong. As Kubernetes' PodGC, the node
        ends and deletes such a Pod.
        """
        own_name = self._node.settings.name
        is_bound_elsewhere = (self.pod["spec"].get("nodeName") or own_name) != own_name
        return self._gone.is_set() or is_deleting(self.pod) or is_bound_elsewhere

    def restarted(self) -> "PodRunner":
        """Return a new runner of the same Pod, which adopts the running containers."""
        runner = PodRunner(self._node, self.pod)
        runner.changed(None if self.gone else self.pod)
        return runner

    async def run(self) -> None:
        """Run the Pod; return when it is gone from this machine, and the API has accepted its deletion."""
        self._spawn(self._writer.run())
        try:
            await self._bind()
            if pod_phases.has_ended(self.pod) and not self._directory.info:
                await self._await_deletion()
                return
            self._identity = self._assign_identity()
            await self._adopt_runs()
            self._spawn(self._reserve_eventually())
            await asyncio.sleep(0)  # the first try comes before any start
            while not self._must_end():
                self._containers.changed.clear()
                plan = self._start_plan()
                for name in plan.start:
                    await self._start(name)
                plan = self._start_plan()  # again: the starts have changed the states
                self._report(plan)
                if not plan.start:
                    await self._wait_for_change(plan.wake_at)
            await self._terminate()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _await_deletion(self) -> None:
        """Start nothing of a Pod that has ended and whose record is lost, as after a restore of a backup."""
        while not self._must_end():
            self._containers.changed.clear()
            await self._containers.changed.wait()
        await self._remove()

    async def _bind(self) -> None:
        """Bind a Pod without a node to this one: the API deletes unbound Pods without a grace period."""
        meta = self.pod["metadata"]
        while not self.pod["spec"].get("nodeName") and not self._gone.is_set():
            patch = {"metadata": {"uid": self._uid}, "spec": {"nodeName": self._node.settings.name}}
            try:
                self.pod = await self._node.kube.patch(kinds.POD, meta["namespace"], meta["name"], patch)
            except (errors.Unavailable, errors.ApiError) as error:
                log.info("pod %s/%s cannot be bound yet: %s", meta["namespace"], meta["name"], error)
                await termination.pause(BIND_RETRY_SECONDS, self._gone)

    async def _adopt_runs(self) -> None:
        """Read the records of earlier agents, and adopt the runs that have not ended.

        The results of their probes are those in the Pod's status.
        """
        statuses = container_statuses.of(self.pod.get("status") or {})
        for name, spec in self._containers.specs.items():
            directories = self._directory.runs(name)[-2:]
            if not directories:
                continue
            runs = [
                await asyncio.to_thread(
                    termination_message.read_run,
                    directory,
                    spec,
                    self._node.data_dir.pod_log(self._uid, name, directory.index),
                )
                for directory in directories
            ]
            run = runs[-1]
            self._not_limited[name] = directories[-1].not_limited
            self._containers.update(name, run=run, previous_run=runs[0] if len(runs) == 2 else None)
            if run.exit is not None:
                continue
            run_id = container_id(self._uid, name, run.index)
            for old in statuses:
                if old["name"] == name and old.get("containerID") == run_id:
                    self._containers.update(
                        name, started=bool(old.get("started")), ready=bool(old.get("ready"))
                    )
            self._monitor(directories[-1])

    def _assign_identity(self) -> PodIdentity:
        """Return the Pod's recorded identity, or record a new one."""
        recorded = PodIdentity.recorded(self._directory.info)
        if recorded is not None:
            self._node.identities.occupy(recorded)
            return recorded
        specs = self._containers.specs.values()
        ports = [port["containerPort"] for spec in specs for port in spec.get("ports") or []]
        shares_gpu = any(gpu_limits.wants_gpu(spec) for spec in specs)
        identity = self._node.identities.new(
            ports,
            user=self._node.mps.user if shares_gpu else None,
            socket_port=tcp_ports.socket_port(self.pod["metadata"]),
        )
        meta = self.pod["metadata"]
        grace = self.pod["spec"].get("terminationGracePeriodSeconds", self._node.settings.grace_seconds)
        record = {**identity.record(), "namespace": meta["namespace"], "name": meta["name"], "grace": grace}
        try:
            self._directory.save(record)
        except OSError:  # the disk is full: the next try takes another identity
            self._node.identities.release(identity)
            raise
        return identity

    def _reserve_ports(self) -> None:
        """Reserve the Pod's TCP ports where shims can bind them; raises as `ReservedPorts.reserve`."""
        if not self._node.binds_ports:
            return
        self._node.ports.reserve(
            self._identity, tcp_ports.of_containers(self._containers.specs.values(), self._identity)
        )

    async def _reserve_eventually(self) -> None:
        """Reserve the ports of containers that run already; retry while another process has bound any.

        While the agent and `up` were both dead, nobody kept other users from these ports.
        """
        is_reported = False
        while not self._must_end():
            try:
                self._reserve_ports()
            except (errors.Temporary, OSError) as error:
                if not is_reported:
                    reason = error.reason if isinstance(error, errors.Temporary) else "AddressNotReserved"
                    self._emit(reason, str(error), warning=True)
                    is_reported = True
            else:
                return
            await termination.pause(RESERVE_RETRY_SECONDS, self._gone)

    def _monitor(self, run: RunDirectory, started: Started | None = None) -> None:
        """Watch and probe a run in tasks; `started` is its shim, None for an adopted run."""
        monitor = ContainerMonitor(
            run,
            self._containers,
            self._node,
            self._identity,
            emit=self._emit,
            on_ready=self._note_ready,
            block=self._block,
            pre_stop=self._pre_stop,
            grace_seconds=self._grace_seconds,
        )
        self._spawn(monitor.watch(started))
        for probe in monitor.probes:
            self._spawn(monitor.probe(probe))

    def _start_plan(self) -> lifecycle.StartPlan:
        return lifecycle.start_plan(
            self._policy, self._containers.inits, self._containers.mains, clock.now(), self._node.settings
        )

    async def _start(self, name: str) -> None:
        """Start a container, or record why it cannot be started now."""
        state = self._containers.states[name]
        run = lifecycle.next_run(state.run, self._node.settings)
        directory = self._directory.run(name, run.index)
        seen_at = clock.now() if run.index else self._seen_at  # a restart becomes necessary only now
        try:
            self._refuse_unsupported()
            self._reserve_ports()
            ready = await self._prepare_reporting(name, directory)
            if ready is None:
                return
            prepared, imports = ready
            async with self._node.launching:
                started = await asyncio.to_thread(
                    launch.start, prepared, streak=run.streak, restart_count=run.restart_count
                )
        except errors.Temporary as error:
            self._block(name, error.reason, str(error))
            return
        except (errors.Unavailable, errors.ApiError, OSError) as error:
            self._block(name, "CreateContainerError", str(error))
            return
        # `blocked` is kept: the shim may still fail. The monitor clears it once the start is recorded.
        self._containers.update(name, run=run, previous_run=state.run, started=False, ready=False)
        method: start_trace.StartMethod = "Zygote" if started.forked else "Cold"
        self._not_limited[name] = started.not_limited
        self._starts[name] = start_trace.NodeStart(seen_at, method, prepared.fetch, prepared.verify, imports)
        if started.remark:
            self._emit("NotForked", f"container {name} is an ordinary new process: {started.remark}")
        self._monitor(directory, started)
        await asyncio.to_thread(self._directory.forget_before, name, run.index)

    async def _prepare_reporting(
        self, name: str, directory: RunDirectory
    ) -> tuple[launch.Launch, float] | None:
        """As `_prepare`, until the Pod must end: then None. Reports the status while that takes long."""
        preparing = asyncio.ensure_future(self._prepare(name, directory))
        seconds: float | None = status_writer.SETTLE_SECONDS
        try:
            while not preparing.done() and not self._must_end():
                self._containers.changed.clear()
                changed = asyncio.ensure_future(self._containers.changed.wait())
                try:
                    await asyncio.wait(
                        [preparing, changed], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    changed.cancel()
                if not preparing.done():
                    self._report(self._start_plan())
                    seconds = None
        finally:
            preparing.cancel()
        if not self._must_end():
            return preparing.result()
        await asyncio.gather(preparing, return_exceptions=True)  # it may be writing the Pod's files
        return None

    async def _prepare(self, name: str, directory: RunDirectory) -> tuple[launch.Launch, float]:
        """Return the launch of a container whose zygote has imported, and the seconds of waiting for that."""
        spec = self._containers.specs[name]
        prepared = await launch.prepare(self._node, self.pod, spec, directory, self._identity)
        begun = clock.monotonic()
        await launch.await_imports(prepared)
        return prepared, clock.monotonic() - begun

    def _refuse_unsupported(self) -> None:
        """Raise errors.Temporary if this machine does not support the Pod's spec."""
        isolation = self._node.isolation
        causes = rules.refusals(
            self.pod,
            self._node.runtimes,
            mounts=isolation is not None,
            protected=isolation.keep if isolation else (),
            data=str(self._node.data_dir.root.resolve()),
            cores=os.sched_getaffinity(0),
        )
        if causes:
            raise errors.Temporary(CONFIG_ERROR, "; ".join(f"{c.field}: {c.message}" for c in causes))

    def _block(self, name: str, reason: str, message: str) -> None:
        """Retry the start of a container after a back-off."""
        before = self._containers.states[name].blocked
        attempts = before.attempts + 1 if before else 1
        until = lifecycle.retry_at(attempts, clock.now(), self._node.settings)
        self._containers.update(name, blocked=Blocked(reason, message, until, attempts))
        if before is None or before.message != message:
            self._emit(reason, message, warning=True)

    def _note_ready(self, run: RunDirectory, headers: Mapping[str, str]) -> None:
        """Record the phases of a start from the first successful answer to the run's readiness probe."""
        beginning = self._starts.pop(run.container, None)
        current = self._containers.states[run.container].run
        if beginning is not None and current is not None and current.started_at is not None:
            self._trace = start_trace.trace(beginning, current.started_at, clock.now(), headers)
            self._node.metrics.started(self.pod, self._trace)

    async def _wait_for_change(self, wake_at: datetime | None) -> None:
        """Wait until the Pod or a container changes, or until `wake_at`."""
        seconds = None if wake_at is None else max((wake_at - clock.now()).total_seconds(), 0.001)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._containers.changed.wait()

    async def _terminate(self) -> None:
        """Drain, preStop, SIGTERM, grace, SIGKILL; then remove the Pod from this machine and from the API."""
        containers = self._containers
        has_ports = any(spec.get("ports") for spec in containers.specs.values())
        takes_traffic = has_ports and pod_status.ready(containers.mains, terminating=False)
        containers.terminating = True
        self._report(lifecycle.StartPlan())
        if not self._gone.is_set() and any(state.running for state in containers.states.values()):
            self._emit("Killing", "stopping the Pod")
            if takes_traffic:
                await termination.pause(self._node.settings.drain_seconds, self._shortened)
            async with asyncio.TaskGroup() as ends:
                for name in [name for name, state in containers.states.items() if state.running]:
                    ends.create_task(self._end(name))
        await self._remove()

    async def _remove(self) -> None:
        """Remove the Pod from this machine and from the API."""
        await stopping.remove(self._directory, self._node.cgroups, 0.0, self._gone)
        if self._identity.address:
            self._node.release(self._identity)
        if any("image" in volume for volume in self.pod["spec"].get("volumes") or []):
            await self._node.images.release(self._uid)
        await termination.delete_from_api(self._node.kube, self.pod, self._gone)

    async def _end(self, name: str) -> None:
        """End a running container: its preStop hook, SIGTERM, SIGKILL.

        The hook is left out if a failed probe is stopping the container, as that stop runs it.
        """
        run = self._containers.states[name].run
        assert run is not None
        grace = 0.0 if self._gone.is_set() else self._grace_seconds()
        if name not in self._containers.stopping:
            grace = await self._pre_stop(name, grace)
        # A hook may have taken the shortened grace period: its container gets the least one after it.
        hurry = self._gone if self._hurry.is_set() else self._hurry
        await stopping.stop([self._directory.run(name, run.index)], grace, hurry)

    async def _pre_stop(self, name: str, grace: float) -> float:
        """Run a container's preStop hook, at most until the container or a shortened grace period ends.

        Returns the seconds left of `grace`; after a hook, at least `LEAST_GRACE_SECONDS`.
        """
        hook = (self._containers.specs[name].get("lifecycle") or {}).get("preStop") or {}
        run = self._containers.states[name].run
        if not hook or run is None or grace <= 0:
            return grace
        directory, begun = self._directory.run(name, run.index), clock.monotonic()
        running = asyncio.ensure_future(self._run_hook(directory, hook, grace))
        ended = asyncio.ensure_future(
            self._containers.until(lambda: not self._containers.is_running(directory))
        )
        hurried = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait([running, ended, hurried], return_when=asyncio.FIRST_COMPLETED)
            if running.done() and (problem := running.result()):
                self._emit("FailedPreStopHook", f"container {name}: {problem}", warning=True)
        finally:
            for task in (running, ended, hurried):
                task.cancel()
        rest = 0.0 if self._hurry.is_set() else grace - (clock.monotonic() - begun)
        return max(rest, termination.LEAST_GRACE_SECONDS)

    async def _run_hook(self, run: RunDirectory, hook: Mapping[str, Any], grace: float) -> str | None:
        """Run a hook in the container of a run; return its failure, or None."""
        try:
            identities = run.identities()
        except OSError as error:  # no descriptor is left
            return str(error)
        target = None
        if identities is not None:
            spec = self._containers.specs[run.container]
            target = RunningContainer(self._node, self._uid, spec, self._identity, identities.main.pid)
        return await termination.run_pre_stop(hook, target, grace, self._hurry)

    @property
    def _policy(self) -> lifecycle.RestartPolicy:
        policy: lifecycle.RestartPolicy = self.pod["spec"].get("restartPolicy") or "Always"
        return policy

    def _grace_seconds(self) -> float:
        """Return the seconds that the preStop hook and the time from SIGTERM to SIGKILL may take together."""
        grace = self.pod["metadata"].get("deletionGracePeriodSeconds")
        if grace is None:
            grace = self.pod["spec"].get("terminationGracePeriodSeconds", self._node.settings.grace_seconds)
        return float(grace)

    def _report(self, plan: lifecycle.StartPlan) -> None:
        """Compute the status, and pass it to the writer."""
        limits = [resource_limits.limits(spec) for spec in self._containers.specs.values()]
        not_limited = {
            resource: reason
            for failed in (*self._not_limited.values(), self._node.cgroups.missing)
            for resource, reason in failed.items()
        }
        status = pod_status.status(
            self._uid,
            self._policy,
            self._containers.inits,
            self._containers.mains,
            identity=self._identity,
            qos_class=qos.qos_class(self.pod["spec"]),
            now=clock.now(),
            old=self._writer.latest,
            terminating=self._containers.terminating,
            backing_off=plan.backing_off,
            not_enforced=cgroup_limits.not_enforced(limits, not_limited),
            limited=any(limit != resource_limits.ContainerLimits() for limit in limits),
            not_filtered=self._node.system_calls.missing,
            trace=self._trace,
        )
        self._writer.set(status, urgent=not pod_status.is_starting(self._writer.latest, status))

    def _emit(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Emit an Event, without waiting."""
        self._node.events.add(self.pod, EventToEmit(reason, message, "Warning" if warning else "Normal"))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in a task that ends with the runner."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("pod %s: a task failed", self.pod["metadata"]["name"], exc_info=error)
