"""Ends all processes of Pods for `slipway down`, without the agent or the API."""

import asyncio

from serving.data_dir import DataDir
from serving.embedded.kubelet.container import stopping
from serving.embedded.kubelet.devices import mps
from serving.embedded.kubelet.records import PodDirectory, pods
from serving.embedded.kubelet.resources.cgroups import detect
from serving.embedded.kubelet.zygote import pool
from serving.settings import Settings
from serving.system import processes
from serving.system.processes import ProcessIdentity


def running(data_dir: DataDir) -> list[ProcessIdentity]:
    """Return the main processes of all containers that run."""
    recorded = (run.identities() for pod in pods(data_dir.pods) for run in pod.latest())
    return [
        identities.main
        for identities in recorded
        if identities is not None and processes.is_alive(identities.main)
    ]


def longest_grace(data_dir: DataDir, settings: Settings) -> float:
    """Return the longest grace, in seconds, that `stop_everything` gives a Pod that runs; 0 without any."""
    running_pods = (pod for pod in pods(data_dir.pods) if any(run.exit() is None for run in pod.latest()))
    return max((_grace(pod, settings) for pod in running_pods), default=0.0)


def _grace(pod: PodDirectory, settings: Settings) -> float:
    return float(pod.info.get("grace", settings.node.grace_seconds))


async def stop_everything(data_dir: DataDir, settings: Settings) -> None:
    """End the processes of all Pods, gracefully and concurrently; records stay for the next agent."""
    pool.end_all(data_dir.zygotes)  # first, so that none forks a process for a Pod that is stopped
    cgroups = detect()

    async def stop_pod(pod: PodDirectory) -> None:
        runs = [run for run in pod.latest() if run.exit() is None]
        for run in runs:
            run.note_shutdown()  # before the signal, so that the next agent counts no crash
        await stopping.stop(runs, _grace(pod, settings))
        await asyncio.to_thread(cgroups.remove, pod.path.name)

    await asyncio.gather(*(stop_pod(pod) for pod in pods(data_dir.pods)))
    await asyncio.to_thread(mps.end, data_dir)
    cgroups.sweep_spares()  # those of the zygotes' spare processes, which ended with the zygotes
