"""What is known of one Pod while an agent runs it, shared by those who start, attend and end its containers."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from serving import clock
from serving.embedded.event_queue import Told
from serving.embedded.kubelet.container.exec_command import Target
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.pod import lifecycle, startup
from serving.embedded.kubelet.pod import status as pod_status
from serving.embedded.kubelet.pod.lifecycle import Container
from serving.embedded.kubelet.pod.status_writer import StatusWriter
from serving.embedded.kubelet.records import PodDirectory, RunDirectory
from serving.embedded.kubelet.resources import cgroup_limits
from serving.objects import Object

log = logging.getLogger(__name__)


class PodState:
    """One Pod: the object, the containers as they are now, and the tasks that follow them."""

    def __init__(self, node: Node, obj: Object) -> None:
        self.node = node
        self.object = obj
        self.uid: str = obj["metadata"]["uid"]
        self.directory = PodDirectory(node.data_dir.pods / self.uid)
        self.writer = StatusWriter(node.kube, obj)
        self.specs: dict[str, Object] = {
            c["name"]: c for kind in ("initContainers", "containers") for c in obj["spec"].get(kind) or []
        }
        self.containers: dict[str, Container] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.wake = asyncio.Event()
        """Something has changed: time to ask `pod_life` again."""
        self.gone = asyncio.Event()
        """The API has it no more: no reason to wait for anything."""
        self.seen = clock.now()
        self.beginnings: dict[str, startup.Beginning] = {}
        """Of containers whose runs were begun here and have not served yet."""
        self._trace: startup.Trace | None = None
        self._moved = asyncio.Event()
        self.address = ""
        self.terminating = False
        self.stopping: set[str] = set()
        """Containers that are being stopped because a probe failed."""

    @property
    def policy(self) -> lifecycle.Policy:
        """Return the restartPolicy."""
        policy: lifecycle.Policy = self.object["spec"].get("restartPolicy") or "Always"
        return policy

    def part(self, kind: str) -> list[Container]:
        """Return the `initContainers` or the `containers`, in order."""
        return [self.containers[c["name"]] for c in self.object["spec"].get(kind) or []]

    def running(self, run: RunDirectory) -> bool:
        """Whether this very run is going on."""
        container = self.containers[run.container]
        return container.running and container.run is not None and container.run.index == run.index

    def grace(self) -> float:
        """Return the seconds between SIGTERM and SIGKILL."""
        grace = self.object["metadata"].get("deletionGracePeriodSeconds")
        if grace is None:
            grace = self.object["spec"].get("terminationGracePeriodSeconds", self.node.settings.grace_seconds)
        return float(grace)

    def target(self, name: str, pid: int) -> Target:
        """Return what probes and hooks are aimed at."""
        return Target(self.node, self.uid, self.specs[name], self.address, pid)

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than the API has the Pod."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.gone.wait()

    def update(self, name: str, **changes: Any) -> None:
        """Note what has changed about a container."""
        self.containers[name] = replace(self.containers[name], **changes)
        self.wake.set()
        self._moved.set()
        self._moved = asyncio.Event()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until this holds of the containers."""
        while not holds():
            await self._moved.wait()

    def begun_serving(self, run: RunDirectory, headers: Mapping[str, str]) -> None:
        """Note what the run's start was made of, from the first good answer to its readiness probe."""
        beginning = self.beginnings.pop(run.container, None)
        known = self.containers[run.container].run
        if beginning is not None and known is not None and known.started_at is not None:
            self._trace = startup.trace(beginning, known.started_at, clock.now(), headers)
            self.node.metrics.started(self.object, self._trace)

    def report(self, steps: lifecycle.Steps) -> None:
        """Let the API know how things are."""
        limits = [cgroup_limits.limits(spec) for spec in self.specs.values()]
        status = pod_status.status(
            self.uid,
            self.policy,
            self.part("initContainers"),
            self.part("containers"),
            ip=self.address,
            now=clock.now(),
            old=self.writer.latest,
            terminating=self.terminating,
            backing_off=steps.backing_off,
            not_enforced=cgroup_limits.not_enforced(limits, self.node.cgroups.missing),
            limited=any(limit != cgroup_limits.Limits() for limit in limits),
            trace=self._trace,
        )
        self.writer.say(status, soon=not pod_status.on_its_way(self.writer.latest, status))

    def event(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Emit an Event, without waiting for it."""
        self.node.events.tell(self.object, Told(reason, message, "Warning" if warning else "Normal"))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this in a task that ends with the runner."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("pod %s: a task failed", self.object["metadata"]["name"], exc_info=error)
