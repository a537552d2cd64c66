"""PodMetrics of `metrics.k8s.io/v1beta1`: resource usage of Pods, from two samples of container counters.

Types: https://github.com/kubernetes/metrics/blob/master/pkg/apis/metrics/v1beta1/types.go. `kubectl top pod`
prints them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from serving import clock
from serving.objects import Object
from serving.resources.formats.cadvisor import ContainerKey, ContainerUsage
from serving.resources.kinds import Kind

KIND = Kind("metrics.k8s.io", "v1beta1", "PodMetrics", "pods", status=False)
"""Not among the stored kinds."""
VERBS = ["get", "list"]
_NANO = 1_000_000_000
_KIB = 1024


@dataclass(frozen=True)
class Sample:
    """The counters of all containers at one moment (UTC)."""

    at: datetime
    containers: Mapping[ContainerKey, ContainerUsage]


def of(pod: Object, before: Sample, after: Sample) -> Object | None:
    """Return the PodMetrics of a Pod, or None where none of its containers runs.

    Args:
        pod: the Pod.
        before: the earlier sample; for a container that started since then, cores are the mean over its life.
        after: the later sample.
    """
    meta = pod["metadata"]
    window_seconds = (after.at - before.at).total_seconds()
    containers = []
    for container in pod["spec"]["containers"]:
        key = ContainerKey(meta["namespace"], meta["name"], container["name"])
        if key not in after.containers:
            continue
        later, earlier = after.containers[key], before.containers.get(key)
        if earlier is not None and earlier.started == later.started and window_seconds > 0:
            cores = (later.cpu_seconds - earlier.cpu_seconds) / window_seconds
        else:
            life_seconds = after.at.timestamp() - later.started
            cores = later.cpu_seconds / max(life_seconds, 0.001)
        usage = {
            "cpu": f"{round(max(cores, 0.0) * _NANO)}n",
            "memory": f"{round(later.working_set) // _KIB}Ki",
        }
        containers.append({"name": container["name"], "usage": usage})
    if not containers:
        return None
    named = {name: meta[name] for name in ("name", "namespace", "labels") if name in meta}
    return {
        "kind": KIND.kind,
        "apiVersion": KIND.api_version,
        "metadata": {**named, "creationTimestamp": clock.rfc3339(after.at)},
        "timestamp": clock.rfc3339(after.at),
        "window": f"{window_seconds:.3f}s",
        "containers": containers,
    }


def listing(items: list[Object]) -> Object:
    """Return a PodMetricsList. Its items have kind and apiVersion, unlike those of metrics-server."""
    return {"kind": f"{KIND.kind}List", "apiVersion": KIND.api_version, "metadata": {}, "items": items}
