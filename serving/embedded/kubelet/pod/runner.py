"""One Pod: reads what is, asks `pod_life` what to do, does it, reports. Processes outlive it."""

import asyncio
import contextlib
import logging
import os
from dataclasses import replace
from datetime import datetime

from serving import clock, errors
from serving.embedded.kubelet.container import launch
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.pod import (
    container_monitor,
    lifecycle,
    probes,
    rules,
    startup,
    termination,
)
from serving.embedded.kubelet.pod import status as pod_status
from serving.embedded.kubelet.pod.lifecycle import Blocked, Container, Run
from serving.embedded.kubelet.pod.state import PodState
from serving.embedded.kubelet.records import RunDirectory
from serving.embedded.kubelet.runtimes import RUNTIMES
from serving.objects import Object
from serving.resources import kinds

log = logging.getLogger(__name__)

CONFIG_ERROR = "CreateContainerConfigError"


class PodRunner:
    """Runs one Pod until it has been deleted; `run()` may be cancelled and begun again at any moment."""

    def __init__(self, node: Node, pod: Object) -> None:
        self._pod = PodState(node, pod)

    def changed(self, pod: Object | None) -> None:
        """The API has another version of the Pod, or (None) has it no more."""
        if pod is None:
            self._pod.gone.set()
        else:
            self._pod.object = pod
            if pod["metadata"].get("deletionGracePeriodSeconds") == 0:
                self._pod.gone.set()
        self._pod.wake.set()

    @property
    def pod(self) -> Object:
        """The object, as last seen."""
        return self._pod.object

    @property
    def gone(self) -> bool:
        """Whether the API has it no more."""
        return self._pod.gone.is_set()

    def again(self) -> "PodRunner":
        """Return a fresh runner of the same Pod, which will adopt what runs."""
        fresh = PodRunner(self._pod.node, self._pod.object)
        if self.gone:
            fresh.changed(None)
        return fresh

    async def run(self) -> None:
        """Run the Pod; returns when it is gone from here and from the API."""
        self._pod.spawn(self._pod.writer.run())
        try:
            await self._bind()
            self._prepare()
            while not (self._pod.gone.is_set() or self._pod.object["metadata"].get("deletionTimestamp")):
                self._pod.wake.clear()
                steps = self._steps()
                for name in steps.start:
                    await self._start(name)
                steps = self._steps()
                self._pod.report(steps)
                if not steps.start:
                    await self._sleep_until(steps.wake_at)
            await termination.terminate(self._pod)
        finally:
            for task in self._pod.tasks:
                task.cancel()
            await asyncio.gather(*self._pod.tasks, return_exceptions=True)

    async def _bind(self) -> None:
        """Take a Pod that has no node: the API gives no grace to the end of one that is not on a node."""
        meta = self._pod.object["metadata"]
        while not self._pod.object["spec"].get("nodeName") and not self._pod.gone.is_set():
            patch = {"metadata": {"uid": self._pod.uid}, "spec": {"nodeName": self._pod.node.settings.name}}
            try:
                self._pod.object = await self._pod.node.kube.patch(
                    kinds.POD, meta["namespace"], meta["name"], patch
                )
            except (errors.Unavailable, errors.ApiError) as error:
                log.info("pod %s/%s cannot be bound yet: %s", meta["namespace"], meta["name"], error)
                await self._pod.pause(probes.FIRST_PERIOD)

    def _steps(self) -> lifecycle.Steps:
        return lifecycle.next_steps(
            self._pod.policy,
            self._pod.part("initContainers"),
            self._pod.part("containers"),
            clock.now(),
            self._pod.node.settings,
        )

    def _prepare(self) -> None:
        """Read the records of earlier agents, adopt what runs, and give the Pod its address."""
        for name, spec in self._pod.specs.items():
            recorded = self._pod.directory.runs(name)
            runs = [run.read() for run in recorded[-2:]]
            container = Container(name, spec.get("image", ""))
            if runs:
                container = replace(container, run=runs[-1], before=runs[0] if len(runs) > 1 else None)
            self._pod.containers[name] = container
            if runs and runs[-1].exit is None:
                self._adopt(recorded[-1])
        info = self._pod.directory.info
        if "ip" in info:
            self._pod.address = info["ip"]
            self._pod.node.addresses.take(self._pod.uid, self._pod.address)
            return
        ports = [p["containerPort"] for c in self._pod.specs.values() for p in c.get("ports") or []]
        self._pod.address = self._pod.node.addresses.new(self._pod.uid, ports)
        meta = self._pod.object["metadata"]
        grace = self._pod.object["spec"].get(
            "terminationGracePeriodSeconds", self._pod.node.settings.grace_seconds
        )
        self._pod.directory.save(
            {"ip": self._pod.address, "namespace": meta["namespace"], "name": meta["name"], "grace": grace}
        )

    def _adopt(self, run: RunDirectory) -> None:
        """Go on with a run that an earlier agent started: what its probes had found still holds."""
        known = pod_status.container_id(self._pod.uid, run.container, run.index)
        status = self._pod.object.get("status") or {}
        for said in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
            if said["name"] == run.container and said.get("containerID") == known:
                self._pod.update(
                    run.container, started=bool(said.get("started")), ready=bool(said.get("ready"))
                )
        container_monitor.follow(self._pod, run)

    async def _start(self, name: str) -> None:
        container = self._pod.containers[name]
        index = 0 if container.run is None else container.run.index + 1
        streak = (
            0 if container.run is None else lifecycle.streak_after(container.run, self._pod.node.settings)
        )
        directory = self._pod.directory.run(name, index)
        seen = clock.now() if index else self._pod.seen
        try:
            self._check()
            prepared = await launch.prepare(
                self._pod.node, self._pod.object, self._pod.specs[name], directory, self._pod.address
            )
            async with self._pod.node.launching:
                started = await asyncio.to_thread(launch.start, prepared, streak=streak)
        except errors.Temporary as error:
            self._block(name, error.reason, str(error))
            return
        except (errors.Unavailable, errors.ApiError, OSError) as error:
            self._block(name, "CreateContainerError", str(error))
            return
        self._pod.update(
            name, run=Run(index, streak), before=container.run, blocked=None, started=False, ready=False
        )
        how: startup.How = "Zygote" if started.forked else "Cold"
        self._pod.beginnings[name] = startup.Beginning(seen, how, prepared.fetch, prepared.verify)
        if started.remark:
            self._pod.event("NotForked", f"container {name} is an ordinary new process: {started.remark}")
        container_monitor.follow(self._pod, directory, started)
        await asyncio.to_thread(self._pod.directory.forget_before, name, index)

    def _check(self) -> None:
        causes = rules.refusals(
            self._pod.object,
            RUNTIMES,
            mounts=self._pod.node.jail is not None,
            protected=self._pod.node.jail.keep if self._pod.node.jail else (),
            data=str(self._pod.node.data_dir.root.resolve()),
            cores=os.sched_getaffinity(0),
        )
        if causes:
            raise errors.Temporary(CONFIG_ERROR, "; ".join(f"{c.field}: {c.message}" for c in causes))

    def _block(self, name: str, reason: str, message: str) -> None:
        before = self._pod.containers[name].blocked
        attempts = before.attempts + 1 if before else 1
        until = lifecycle.blocked_until(attempts, clock.now(), self._pod.node.settings)
        self._pod.update(name, blocked=Blocked(reason, message, until, attempts))
        if before is None or before.message != message:
            self._pod.event(reason, message, warning=True)

    async def _sleep_until(self, moment: datetime | None) -> None:
        seconds = None if moment is None else max((moment - clock.now()).total_seconds(), 0.001)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._pod.wake.wait()
