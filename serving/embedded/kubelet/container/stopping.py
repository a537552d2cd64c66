"""Follows runs to their end, and ends them: by their records alone, so that it works without the API."""

import asyncio
import logging
import signal
from collections.abc import Sequence

from serving.data_dir import DataDir
from serving.embedded.kubelet.devices import mps
from serving.embedded.kubelet.records import PodDirectory, RunDirectory, pods
from serving.embedded.kubelet.resources.cgroups import Cgroups, detect
from serving.embedded.kubelet.spawning import gone
from serving.embedded.kubelet.zygote import pool
from serving.settings import Settings
from serving.system import processes, procfs

log = logging.getLogger(__name__)

POLL_SECONDS = 0.01
"""Between looks at the record of a recorder that is just starting: it takes about 50 ms."""
VERDICT_SECONDS = 5.0
"""Longest wait for a recorder to start, or to finish its log after the last process was killed."""


async def ended(run: RunDirectory, recorder_handle: int | None = None) -> bool:
    """Wait until the run has ended and its exit record is written.

    `recorder_handle` is the pidfd of a recorder that was started just now and has perhaps recorded nothing yet.

    Whoever recorded it: a recorder of this agent, of an earlier one, or none any more (then the verdict is
    that nobody saw the end). Returns False where the run has never begun, and never will.
    """
    if recorder_handle is not None:
        await gone(recorder_handle)
    while run.exit() is None:
        found = run.identities()
        if found is None:
            if run.unattended() and run.identities() is None:
                return False
            await asyncio.sleep(POLL_SECONDS)
            continue
        recorder, process = found
        if (pidfd := processes.open_pidfd(recorder)) is not None:
            await gone(pidfd)
        if run.exit() is None:
            processes.send_signal(process, signal.SIGKILL)
            here = recorder.boot_id == procfs.boot_id()
            run.declare_lost("its exit recorder was killed" if here else "the machine was restarted")
    return True


def send(run: RunDirectory, number: signal.Signals) -> bool:
    """Signal the run's main process, if it is still that one; False where it is not there."""
    found = run.identities()
    return found is not None and processes.send_signal(found[1], number)


async def _terminate(run: RunDirectory) -> None:
    while run.exit() is None and not send(run, signal.SIGTERM):  # noqa: ASYNC110 a file says so
        await asyncio.sleep(POLL_SECONDS)  # just being started, or just having ended


async def stop(runs: Sequence[RunDirectory], grace: float, hurry: asyncio.Event | None = None) -> None:
    """SIGTERM, `grace` seconds, SIGKILL; returns when all have ended. `hurry` cuts the grace short."""
    waits = [asyncio.create_task(ended(run)) for run in runs if run.exit() is None]
    if not waits:
        return
    if grace > 0:
        terminating = [asyncio.create_task(_terminate(run)) for run in runs]
        hurried = asyncio.create_task((hurry or asyncio.Event()).wait())
        finished = asyncio.create_task(_all(waits))
        await asyncio.wait({hurried, finished}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        for task in (hurried, finished, *terminating):
            task.cancel()
    while not all(wait.done() for wait in waits):
        for run in runs:
            if run.exit() is None:
                send(run, signal.SIGKILL)
        await asyncio.wait(waits, timeout=VERDICT_SECONDS)


async def _all(waits: Sequence[asyncio.Task[bool]]) -> bool:
    await asyncio.wait(waits)
    return True


async def remove(
    pod: PodDirectory, cgroups: Cgroups, grace: float, hurry: asyncio.Event | None = None
) -> None:
    """End whatever a Pod still runs, then forget it: cgroups, volumes, logs and records."""
    await stop(list(pod.latest()), grace, hurry)
    await asyncio.to_thread(cgroups.remove, pod.path.name)
    await asyncio.to_thread(pod.remove)


async def stop_everything(data_dir: DataDir, settings: Settings) -> None:
    """End every process of every Pod, gracefully and all at once; records stay, for the next agent to read."""
    pool.end_all(data_dir.zygotes)
    cgroups = detect()

    async def one(pod: PodDirectory) -> None:
        await stop(list(pod.latest()), float(pod.info.get("grace", settings.node.grace_seconds)))
        await asyncio.to_thread(cgroups.remove, pod.path.name)

    await asyncio.gather(*(one(pod) for pod in pods(data_dir.pods)))
    await asyncio.to_thread(mps.end, data_dir)
    cgroups.sweep_spares()
