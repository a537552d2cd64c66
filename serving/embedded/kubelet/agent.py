"""The node agent: runs the Pods of the API. Their processes outlive it."""

import asyncio
import logging
from collections.abc import Mapping

from serving import clock
from serving.data_dir import DataDir
from serving.embedded.kubelet.container import stopping
from serving.embedded.kubelet.node import Node, discover
from serving.embedded.kubelet.pod.runner import PodRunner
from serving.embedded.kubelet.records import PodDirectory, pods
from serving.embedded.kubelet.runtimes import RUNTIMES, LocalRuntime
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.embedded.workloads.run import run_workloads
from serving.kube import Informer, Watches, connect_eventually
from serving.objects import Object
from serving.resources import kinds
from serving.settings import Settings
from serving.system.files import open_files
from serving.system.network.kept_sockets import KeptSockets

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""Before a runner that failed (a bug, a full disk) is replaced."""


class Agent:
    """One runner per Pod."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._runners: dict[str, PodRunner] = {}
        """By the Pod's uid."""
        self._finished: set[str] = set()
        """Uids of Pods that have ended here but still exist in the API (finalizers)."""
        self._tasks: set[asyncio.Task[None]] = set()

    def changed(self, before: Object | None, after: Object | None) -> None:
        """Start, inform or stop the runner of a Pod that has changed in the API."""
        # Another uid: the Pod was deleted, and another one was created under its name.
        if before is not None and (after is None or after["metadata"]["uid"] != before["metadata"]["uid"]):
            uid = before["metadata"]["uid"]
            self._finished.discard(uid)
            if uid in self._runners:
                self._runners[uid].changed(None)
        if after is None:
            return
        uid = after["metadata"]["uid"]
        if uid in self._runners:
            self._runners[uid].changed(after)
        elif uid not in self._finished and not self._has_ended(after):
            self._runners[uid] = PodRunner(self._node, after)
            self._spawn(uid)

    def _has_ended(self, pod: Object) -> bool:
        """Whether an earlier agent has ended a Pod that finalizers keep: deleted, and without records."""
        meta = pod["metadata"]
        return (
            meta.get("deletionGracePeriodSeconds") == 0
            and not (self._node.data_dir.pods / meta["uid"]).exists()
        )

    def _spawn(self, uid: str) -> None:
        task = asyncio.get_running_loop().create_task(self._supervise(uid))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _supervise(self, uid: str) -> None:
        """Run the Pod to its end; a runner that fails is replaced."""
        while True:
            runner = self._runners[uid]
            try:
                await runner.run()
            except Exception:  # a bug with one Pod must not stop the others
                log.exception("pod %s", runner.pod["metadata"]["name"])
                await asyncio.sleep(RETRY_SECONDS)
                self._runners[uid] = runner.restarted()
            else:
                break
        del self._runners[uid]
        if not runner.gone:  # the API still has the Pod: its next change must not start it again
            self._finished.add(uid)

    async def remove_orphans(self, informer: Informer) -> None:
        """End the processes and remove the records and image pins of Pods that the API no longer has."""
        await informer.synced.wait()
        known = {pod["metadata"]["uid"] for pod in informer}
        orphans = [pod for pod in pods(self._node.data_dir.pods) if pod.path.name not in known]
        await asyncio.gather(*(self._remove_orphan(pod) for pod in orphans))
        await self._node.images.release_others(lambda: {pod["metadata"]["uid"] for pod in informer})

    async def _remove_orphan(self, pod: PodDirectory) -> None:
        try:
            identity = PodIdentity.recorded(pod.info)
            await stopping.remove(pod, self._node.cgroups, self._node.settings.grace_seconds)
            if identity is not None:
                self._node.release(identity)
        except Exception:  # a broken record of one Pod must not stop the others, now and at each start
            log.exception("pod %s, which no longer exists, stays on the machine", pod.path.name)

    async def close(self) -> None:
        """Stop all runners; the containers keep running."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def run(
    data_dir: DataDir,
    settings: Settings,
    *,
    kept: KeptSockets,
    runtimes: Mapping[str, LocalRuntime] = RUNTIMES,
) -> None:
    """Run Pods until cancelled; their processes stay, for the next agent to adopt.

    Args:
        data_dir: the data directory.
        settings: the settings.
        kept: holds the sockets at the Pods' addresses, at first those of the last agent.
        runtimes: the local runtimes, by image.
    """
    open_files.set_limit()  # the node keeps two sockets for each declared port
    data_dir.pods.mkdir(parents=True, exist_ok=True, mode=0o700)
    async with await connect_eventually(data_dir.kubeconfig, component="node") as kube:
        node = discover(data_dir, settings, kube, kept, runtimes)
        # Before any Pod starts: new Pods must not get the addresses and ports of those that still run.
        records = [PodIdentity.recorded(pod.info) for pod in pods(data_dir.pods)]
        identities = [identity for identity in records if identity is not None]
        for identity in identities:
            node.identities.occupy(identity)
        node.ports.adopt(identities, clock.monotonic())
        agent = Agent(node)
        watches = Watches(kube)
        informer = watches.of(kinds.POD)
        informer.on_change(agent.changed)
        deployments = watches.of(kinds.DEPLOYMENT)
        node.zygotes.follow(deployments)
        layout, port = node.cgroups.layout, settings.node.metrics_port
        try:
            async with (
                node.metrics.served(data_dir, layout, settings.pages.host, port) as page,
                asyncio.TaskGroup() as group,
            ):
                log.info("metrics at %s", page.url)
                group.create_task(run_workloads(kube, settings, watches))
                group.create_task(agent.remove_orphans(informer))
                group.create_task(node.events.run())
                group.create_task(node.ports.run())
                group.create_task(node.zygotes.run(deployments))
        finally:
            await agent.close()
