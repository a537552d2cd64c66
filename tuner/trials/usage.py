"""What a replica has used: its node's counters, read through the API, and what two readings of them say.

The source is kubelet's `/metrics/cadvisor` through the node proxy; the embedded API answers the same path. On one machine
memory is counted with shared pages; on a cluster it is what the cgroup is charged for.
"""

from dataclasses import fields

from serving import errors
from serving.kube import Kube
from serving.objects import Object
from serving.resources import cadvisor
from serving.resources.cadvisor import ContainerUsage
from serving.resources.trial import Usage

NODES = "/api/v1/nodes"


def of_pod(text: str, namespace: str, pod: str) -> ContainerUsage | None:
    """Return the sums over a Pod's containers, as a node's metrics have them; None where they do not know it.

    The peak is that of each container, not of all at once.
    """
    found = [
        figures
        for where, figures in cadvisor.containers(text).items()
        if (where.namespace, where.pod) == (namespace, pod)
    ]
    if not found:
        return None
    of_times = {"started": min(one.started for one in found), "at": max(one.at for one in found)}
    sums = {field.name: sum(getattr(one, field.name) for one in found) for field in fields(ContainerUsage)}
    return ContainerUsage(**{**sums, **of_times})


def between(before: ContainerUsage, after: ContainerUsage, seconds: float) -> Usage:
    """Return the usage in the time between two readings.

    `seconds` have passed between them. Where the node says when it looked, these times count instead (kubelet looks
    every 10 to 15 s): two readings of one look say nothing of the processor.

    A counter that is lower than before has begun anew (the container was started again): what it has now is all that is
    known. Memory is the highest that is known of this time: the high-water mark where it has risen, and the readings
    themselves where it is older than the first of them.
    """
    periods = _risen(before.periods, after.periods)
    throttled = _risen(before.throttled_periods, after.throttled_periods)
    peak = after.peak if after.peak != before.peak else 0.0
    span = after.at - before.at if before.at and after.at else seconds
    return Usage(
        cpu_cores=_risen(before.cpu_seconds, after.cpu_seconds) / span if span > 0 else 0.0,
        cpu_throttled=throttled / periods if periods else 0.0,
        memory_bytes=int(max(before.working_set, after.working_set, peak)),
        gpu_utilization=(before.gpu_duty + after.gpu_duty) / 2 / 100,
        gpu_memory_bytes=int(max(before.gpu_memory, after.gpu_memory)),
    )


def _risen(before: float, after: float) -> float:
    return after - before if after >= before else after


async def read(kube: Kube, pod: Object) -> ContainerUsage:
    """Read a Pod's counters.

    Raises:
        errors.Temporary: `NoUsage`, its node does not know it (yet), or there is no such node.
        errors.Forbidden: this account may not `get` the resource `nodes/proxy`.
        errors.Unavailable: the API or the node did not answer.
    """
    meta, node = pod["metadata"], pod["spec"].get("nodeName") or ""
    found = of_pod(await _metrics(kube, node), meta["namespace"], meta["name"])
    if found is None:
        message = f"node {node} has no figures of Pod {meta['namespace']}/{meta['name']}"
        raise errors.Temporary("NoUsage", message)
    return found


async def machine(kube: Kube, node: str) -> str:
    """Return what a node is, in one line: processor, cores, GPU.

    Raises:
        errors.Temporary: `NoUsage`, there is no such node.
        errors.Forbidden: this account may not `get` the resource `nodes/proxy`, or nodes.
        errors.Unavailable: the API or the node did not answer.
    """
    said = cadvisor.machine(await _metrics(kube, node))
    if said:
        return described(said.get("cpu", ""), said.get("cores", ""), said.get("gpu", ""))
    return of_node(await kube.request("GET", f"{NODES}/{node}"))


def of_node(node: Object) -> str:
    """Return what a cluster's Node says of itself; it does not name the processor, so its instance type stands for it.

    The GPU is what NVIDIA's GPU feature discovery has found.
    """
    labels = node["metadata"].get("labels") or {}
    status = node.get("status") or {}
    architecture = (status.get("nodeInfo") or {}).get("architecture", "")
    kind = labels.get("node.kubernetes.io/instance-type", "") or architecture
    cores = str((status.get("capacity") or {}).get("cpu", ""))
    return described(kind, cores, labels.get("nvidia.com/gpu.product", ""))


def described(cpu: str, cores: str, gpu: str) -> str:
    """Return the parts that are known, with commas."""
    counted = f"{cores} core{'' if cores == '1' else 's'}" if cores else ""
    return ", ".join(part for part in (cpu, counted, gpu or "no GPU") if part)


async def _metrics(kube: Kube, node: str) -> str:
    try:
        return (await kube.raw(f"{NODES}/{node}/proxy/{cadvisor.PATH}")).decode()
    except errors.Forbidden:
        raise
    except errors.ApiError as error:
        raise errors.Temporary("NoUsage", f"the metrics of node {node}: {error}") from error
