"""Monitors one run of a container: its start, its probes and its end."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from serving import clock
from serving.embedded.kubelet.container import stopping, termination_message
from serving.embedded.kubelet.container.exec_command import RunningContainer
from serving.embedded.kubelet.container.launch import Started
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.pod import probe_client, probes
from serving.embedded.kubelet.pod.containers import Containers
from serving.embedded.kubelet.pod.lifecycle import Container, ContainerRun
from serving.embedded.kubelet.pod.probe_client import ProbeAnswer
from serving.embedded.kubelet.pod.probes import ContainerProbe, ProbeVerdict
from serving.embedded.kubelet.records import RunDirectory
from serving.embedded.pod_spec.pod_identity import PodIdentity

log = logging.getLogger(__name__)

OnReady = Callable[[RunDirectory, Mapping[str, str]], None]
"""Takes the run, and the headers of the probe's answer."""
Block = Callable[[str, str, str], None]
"""Takes the container's name, a reason and a message."""
PreStop = Callable[[str, float], Awaitable[float]]
"""Takes the container's name and the grace period in seconds; returns the seconds left of it."""


class EmitEvent(Protocol):
    """Emits an Event of the Pod, without waiting."""

    def __call__(self, reason: str, message: str, *, warning: bool = False) -> None: ...


class ContainerMonitor:
    """Updates the state of a container from one run; `watch` and each `probe` are separate tasks."""

    def __init__(
        self,
        run: RunDirectory,
        containers: Containers,
        node: Node,
        identity: PodIdentity,
        *,
        emit: EmitEvent,
        on_ready: OnReady,
        block: Block,
        pre_stop: PreStop,
        grace_seconds: Callable[[], float],
    ) -> None:
        """Start nothing yet.

        Args:
            run: the run to monitor.
            containers: the containers of the Pod; the state of this one is updated.
            node: the node of the Pod.
            identity: the identity of the Pod.
            emit: emits Events of the Pod.
            on_ready: called with the run and the headers of the answer that made the container ready.
            block: called with the container's name, a reason and a message if the run cannot start.
            pre_stop: runs a container's preStop hook, and returns the seconds left of the grace period.
            grace_seconds: returns the seconds of the grace period after a failed probe.
        """
        self._run = run
        self._name = run.container
        self._containers = containers
        self._node = node
        self._identity = identity
        self._emit = emit
        self._on_ready = on_ready
        self._block = block
        self._pre_stop = pre_stop
        self._grace_seconds = grace_seconds

    @property
    def probes(self) -> list[ContainerProbe]:
        """Return the container's probes."""
        return probes.parse(self._containers.specs[self._name])

    @property
    def _state(self) -> Container:
        return self._containers.states[self._name]

    def _is_running(self) -> bool:
        return self._containers.is_running(self._run)

    async def watch(self, started: Started | None) -> None:
        """Follow the run to its end; `started` is its shim, if it was just started."""
        if started is not None:
            await _start_recorded(started)
        end = asyncio.ensure_future(stopping.ended(self._run, started.pidfd if started else None))
        try:
            while not end.done() and not self._try_note_running():
                await asyncio.wait({end}, timeout=stopping.POLL_SECONDS)
            has_run = await end
        finally:
            end.cancel()
        if not has_run:
            self._containers.update(self._name, run=self._state.previous_run, previous_run=None)
            # Else an earlier agent was killed while it started the shim: that is no failed start.
            if started is not None:
                self._block(self._name, "CreateContainerError", self._start_failure())
            return
        run = await self._read_ended()
        self._containers.update(self._name, run=run, blocked=None, started=False, ready=False)
        if run.exit is not None and run.exit.code != 0:
            detail = run.exit.message or f"exit code {run.exit.code}"
            self._emit(run.exit.reason, f"container {self._name}: {detail}", warning=True)

    def _start_failure(self) -> str:
        """Return the message of a shim that ended before the container began, with its last error if any."""
        error = self._run.shim_error()
        return "its container shim ended before it had recorded the start" + (error and f": {error}")

    def _try_note_running(self) -> bool:
        """Update the state if the start is recorded; return whether it was.

        While no descriptor is free, the record cannot be read.
        """
        with contextlib.suppress(OSError):
            if self._run.identities() is not None:
                self._note_running()
                return True
        return False

    async def _read_ended(self) -> ContainerRun:
        """Remove the cgroups of the ended run and read its state.

        Retries while no thread or no descriptor is free.
        """
        while True:
            try:
                await asyncio.to_thread(self._node.cgroups.remove, self._run.pod_uid, self._name)
                return await asyncio.to_thread(
                    termination_message.read_run,
                    self._run,
                    self._containers.specs[self._name],
                    self._node.data_dir.pod_log(self._run.pod_uid, self._name, self._run.index),
                )
            except (OSError, RuntimeError) as error:
                log.info("the end of %s cannot be read yet: %s", self._run.path, error)
                await asyncio.sleep(stopping.RETRY_SECONDS)

    def _note_running(self) -> None:
        """Update the state to running: started and ready at once where the container has no such probe."""
        state = self._state
        is_first_sight = state.run is None or state.run.started_at is None
        kinds = {probe.kind for probe in self.probes}
        started = state.started or "startup" not in kinds
        ready = state.ready or (started and "readiness" not in kinds)
        run = self._run.read()
        self._containers.update(self._name, run=run, blocked=None, started=started, ready=ready)
        if is_first_sight:
            self._emit("Started", f"started container {self._name} at {self._identity.address}")

    async def probe(self, probe: ContainerProbe) -> None:
        """Send a probe periodically while the container runs, and act on each change of its verdict."""
        await self._containers.until(lambda: self._can_probe(probe) or not self._is_running())
        state = self._state
        if not self._can_probe(probe) or state.run is None or state.run.started_at is None:
            return
        if probe.kind == "startup" and state.started:
            return
        started_at = state.run.started_at
        # Of an adopted run, the state has the verdicts of an earlier agent.
        was_ok = {"startup": state.started, "readiness": state.ready}.get(probe.kind, False)
        verdict = ProbeVerdict(ok=was_ok or None, proven=was_ok)
        # From here on the running time is measured by the monotonic clock, which nobody sets.
        ran_for, begun = probes.ran_for(started_at, clock.now()), clock.monotonic()
        await asyncio.sleep(max(probe.initial_delay - ran_for, 0))
        while self._is_probed():
            try:
                identities = self._run.identities()
            except OSError:  # no descriptor is left, which says nothing about the container
                await asyncio.sleep(probe.period)
                continue
            if identities is None:
                return
            target = RunningContainer(
                self._node,
                self._run.pod_uid,
                self._containers.specs[self._name],
                self._identity,
                identities.main.pid,
            )
            sent_at = clock.monotonic()
            answer = await probe_client.send(target, probe.action, probe.timeout)
            if not self._is_running():
                return
            if answer.address_taken:
                self._emit("AddressTaken", f"container {self._name}: {answer.problem}", warning=True)
            answered_at = clock.monotonic()
            before = verdict
            verdict = probes.judge(probe, before, answered_at, success=answer.problem is None)
            if verdict.ok is not before.ok and await self._act(probe, verdict, answer):
                return
            if probe.kind == "startup" and verdict.ok:
                return
            since_start = ran_for + clock.monotonic() - begun
            await asyncio.sleep(probes.next_delay(probe, verdict, since_start, answered_at - sent_at))

    def _can_probe(self, probe: ContainerProbe) -> bool:
        """Whether the process runs and, except for the startup probe, has started up."""
        state = self._state
        has_begun = self._is_running() and state.run is not None and state.run.started_at is not None
        return has_begun and (state.started or probe.kind == "startup")

    def _is_probed(self) -> bool:
        """Whether the container runs and is not being stopped."""
        is_stopping = self._name in self._containers.stopping or self._containers.terminating
        return self._is_running() and not is_stopping

    async def _act(self, probe: ContainerProbe, verdict: ProbeVerdict, answer: ProbeAnswer) -> bool:
        """Act on a new verdict; return whether the run was stopped."""
        name = self._name
        if probe.kind == "readiness":
            if verdict.ok:
                self._on_ready(self._run, answer.headers)
            self._containers.update(name, ready=verdict.ok is True)
        elif probe.kind == "startup" and verdict.ok:
            has_readiness = any(spec.kind == "readiness" for spec in self.probes)
            self._containers.update(name, started=True, ready=not has_readiness)
        if verdict.ok is not False:
            return False
        self._emit("Unhealthy", f"{probe.kind} probe of {name} failed: {answer.problem}", warning=True)
        if probe.kind == "readiness":
            return False
        grace = self._grace_seconds() if probe.grace is None else probe.grace
        await self._stop(f"container {name} failed its {probe.kind} probe", grace)
        return True

    async def _stop(self, reason: str, grace: float) -> None:
        """Stop the run with its preStop hook, within `grace` seconds."""
        self._emit("Killing", reason)
        self._containers.stopping.add(self._name)
        try:
            await stopping.stop([self._run], await self._pre_stop(self._name, grace))
        finally:
            self._containers.stopping.discard(self._name)


async def _start_recorded(started: Started) -> None:
    """Wait until the shim has recorded the start, or has ended."""
    with started.connection as connection:
        connection.setblocking(False)  # noqa: FBT003 the socket module's signature
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_recv(connection, 1)
