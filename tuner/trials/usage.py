"""The usage of a replica: the difference of two readings of its node's counters.

The source is kubelet's `/metrics/cadvisor` through the node proxy; the embedded API serves the same path. On
one machine memory includes shared pages; on a cluster it is the charge of the cgroup.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TypeVar

from serving import errors
from serving.kube import Kube, node_pages
from serving.objects import Object
from serving.resources.formats import cadvisor
from serving.resources.formats.cadvisor import ContainerUsage
from serving.resources.tuning.trial import Usage

T = TypeVar("T")

NODE_SECONDS = 30.0
"""Timeout of a node's page: as of any request to the API."""


def of_pod(text: str, namespace: str, pod: str) -> ContainerUsage | None:
    """Return the sums over a Pod's containers in a node's metrics; None if they lack the Pod.

    The peak is the sum of the containers' peaks; `started` is the earliest start, `at` the latest sample.

    Args:
        text: the answer of `/metrics/cadvisor`.
        namespace: of the Pod.
        pod: the Pod's name.
    """
    containers = [
        container_usage
        for key, container_usage in cadvisor.containers(text).items()
        if (key.namespace, key.pod) == (namespace, pod)
    ]
    if not containers:
        return None
    sums = {field.name: sum(getattr(c, field.name) for c in containers) for field in fields(ContainerUsage)}
    summed = ContainerUsage(**sums)
    return replace(summed, started=min(c.started for c in containers), at=max(c.at for c in containers))


def between(before: ContainerUsage, after: ContainerUsage, seconds: float) -> Usage:
    """Return the usage in the time between two readings.

    `seconds` is the time between the readings; if the node has timestamps (kubelet samples every 10 to 15 s),
    their difference replaces it, and two readings of one timestamp give no CPU usage. A counter that fell was
    reset by a restart of the container and counts from 0.
    """
    periods = _increase(before.periods, after.periods)
    throttled_periods = _increase(before.throttled_periods, after.throttled_periods)
    # An unchanged peak is older than the first reading; a changed one was reached between the readings.
    peak = after.peak if after.peak != before.peak else 0.0
    span = after.at - before.at if before.at and after.at else seconds
    gpu_shares = [share for share in (before.gpu_share, after.gpu_share) if share is not None]
    return Usage(
        cpu_cores=_increase(before.cpu_seconds, after.cpu_seconds) / span if span > 0 else 0.0,
        cpu_throttled=throttled_periods / periods if periods else 0.0,
        memory_bytes=int(max(before.working_set, after.working_set, peak)),
        gpu_utilization=sum(gpu_shares) / len(gpu_shares) if gpu_shares else 0.0,
        gpu_memory_bytes=int(max(before.gpu_memory, after.gpu_memory)),
    )


def _increase(before: float, after: float) -> float:
    """Return the increase of a counter, which is `after` if the counter was reset."""
    return after - before if after >= before else after


async def read(kube: Kube, pod: Object) -> ContainerUsage:
    """Read a Pod's counters.

    Raises:
        ValueError: the node's answer is not in Prometheus's text format, or longer than is read.
        errors.Temporary: `NoUsage`, the node does not exist or does not know the Pod (yet).
        errors.Forbidden: this account may not `get` the resource `nodes/proxy`.
        errors.Unavailable: the API or the node did not answer.
        RuntimeError: no thread can be started.
    """
    meta, node = pod["metadata"], pod["spec"].get("nodeName") or ""
    counters = await _read(kube, node, lambda text: of_pod(text, meta["namespace"], meta["name"]))
    if counters is None:
        message = f"node {node} has no figures of Pod {meta['namespace']}/{meta['name']}"
        raise errors.Temporary("NoUsage", message)
    return counters


async def machine(kube: Kube, node: str) -> str:
    """Return the description of a node in one line: processor, cores, GPU.

    Raises:
        ValueError: the node's answer is not in Prometheus's text format, or longer than is read.
        errors.Temporary: `NoUsage`, the API answered with an error other than Forbidden.
        errors.Forbidden: this account may not `get` nodes.
        errors.NotFound: the node does not exist, and this account may not `get` the resource `nodes/proxy`.
        errors.Unavailable: the API or the node did not answer.
        RuntimeError: no thread can be started.
    """
    try:
        figures = await _read(kube, node, cadvisor.machine)
    except errors.Forbidden:  # few accounts have the right to nodes/proxy
        figures = {}
    if figures:
        return machine_summary(figures.get("cpu", ""), figures.get("cores", ""), figures.get("gpu", ""))
    return of_node(await kube.request("GET", f"/api/v1/nodes/{node}"))


def of_node(node: Object) -> str:
    """Return the description of a cluster's Node: instance type, cores, GPU.

    The GPU comes from the labels of NVIDIA's GPU feature discovery.
    """
    labels = node["metadata"].get("labels") or {}
    status = node.get("status") or {}
    architecture = (status.get("nodeInfo") or {}).get("architecture", "")
    kind = labels.get("node.kubernetes.io/instance-type", "") or architecture
    cores = str((status.get("capacity") or {}).get("cpu", ""))
    return machine_summary(kind, cores, labels.get("nvidia.com/gpu.product", ""))


def machine_summary(cpu: str, cores: str, gpu: str) -> str:
    """Return the known parts of a machine's hardware, separated by commas."""
    counted = f"{cores} core{'' if cores == '1' else 's'}" if cores else ""
    return ", ".join(part for part in (cpu, counted, gpu or "no GPU") if part)


async def _read(kube: Kube, node: str, parse: Callable[[str], T]) -> T:
    """Return what `parse` makes of the node's `/metrics/cadvisor`.

    Raises:
        ValueError: the answer is not UTF-8, or longer than is read, or `parse` raises it.
        errors.Temporary: `NoUsage`, the API answered with an error other than Forbidden.
        errors.Forbidden: this account may not `get` the resource `nodes/proxy`.
        errors.Unavailable: the API or the node did not answer.
        RuntimeError: no thread can be started.
    """
    try:
        return await node_pages.read(kube, node, parse, seconds=NODE_SECONDS)
    except errors.Forbidden:
        raise
    except errors.ApiError as error:
        raise errors.Temporary("NoUsage", f"the metrics of node {node}: {error}") from error
