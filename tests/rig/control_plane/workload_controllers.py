"""The workload controllers without the rest of the node."""

from serving.embedded.workloads.run import run_workloads
from serving.kube import Kube, Watches
from serving.settings import Settings


async def workloads(kube: Kube, settings: Settings) -> None:
    """Run the controllers until cancelled."""
    await run_workloads(kube, settings, Watches(kube))
