"""A node with hollow replicas: the controllers of the node agent, and Pods that are ready without a process.

The same code as on a real node writes Pods, their statuses and Events, Deployment statuses and
EndpointSlices; only processes, cgroups and probes are missing, as in kubemark. All Pods share one address,
where one server answers for all of them.
"""

import argparse
import asyncio
import gc
from functools import partial
from pathlib import Path

import uvloop

from serving import clock
from serving.cli.machine.component import COLLECT_AFTER
from serving.data_dir import DataDir
from serving.embedded.kubelet.pod import status
from serving.embedded.kubelet.pod.lifecycle import Container, ContainerRun
from serving.embedded.kubelet.pod.status_writer import StatusWriter
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.embedded.workloads.run import run_workloads
from serving.kube import EventRecorder, Kube, Watches, connect
from serving.resources import kinds
from serving.settings import DEFAULTS

START_SECONDS = 0.05
"""Between a replica that runs and one that is ready: both are reported."""
OWN_USER = 1_879_048_192
"""The user of all hollow Pods, so that their status is that of isolated ones."""


class HollowNode:
    def __init__(self, kube: Kube, address: str) -> None:
        self._kube = kube
        self._address = address
        self._events = EventRecorder(kube, "node")
        self._tasks: set[asyncio.Task[None]] = set()

    def changed(self, before: dict[str, object] | None, after: dict[str, object] | None) -> None:
        if before is None and after is not None:
            self._spawn(after)

    def _spawn(self, pod: dict[str, object]) -> None:
        task = asyncio.get_running_loop().create_task(self._run(pod))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, pod: dict[str, object]) -> None:
        """Report a Pod that starts and becomes ready, as the agent does."""
        writer = StatusWriter(self._kube, pod)
        writing = asyncio.ensure_future(writer.run())
        spec = pod["spec"]
        assert isinstance(spec, dict)
        run = ContainerRun(0, started_at=clock.now())
        names = [(c["name"], c.get("image", "")) for c in spec["containers"]]
        for ready in (False, True):
            container = partial(Container, run=run, started=ready, ready=ready)
            writer.set(self._status(pod, [container(name, image) for name, image in names], writer.latest))
            if not ready:
                await self._events.emit(pod, "Started", f"started container {names[0][0]} at {self._address}")
                await asyncio.sleep(START_SECONDS)
        await writing  # the real agent's writer stays too, for as long as the Pod does

    def _status(
        self, pod: dict[str, object], containers: list[Container], old: dict[str, object]
    ) -> dict[str, object]:
        meta = pod["metadata"]
        assert isinstance(meta, dict)
        return status.status(
            meta["uid"],
            "Always",
            (),
            containers,
            identity=PodIdentity(self._address, OWN_USER),
            qos_class="BestEffort",
            now=clock.now(),
            old=old,
            terminating=False,
            backing_off=(),
            not_enforced="",
            limited=False,
        )


async def run(data_dir: DataDir, address: str) -> None:
    async with await connect(data_dir.kubeconfig, component="node") as kube:
        node = HollowNode(kube, address)
        watches = Watches(kube)
        watches.of(kinds.POD).on_change(node.changed)
        await run_workloads(kube, DEFAULTS, watches)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--address", required=True)
    options = parser.parse_args()
    gc.set_threshold(*COLLECT_AFTER)  # as in the node's process, whose code this is
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(DataDir(Path(options.data_dir)), options.address))
