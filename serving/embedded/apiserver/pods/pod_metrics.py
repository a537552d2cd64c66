"""`metrics.k8s.io/v1beta1` PodMetrics: what Pods use now, from two samples of the counters of their containers.

https://github.com/kubernetes/metrics/blob/master/pkg/apis/metrics/v1beta1/types.go. `kubectl top pod` asks for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from serving.objects import Object
from serving.resources.cadvisor import ContainerKey, ContainerUsage
from serving.resources.kinds import Kind

KIND = Kind("metrics.k8s.io", "v1beta1", "PodMetrics", "pods", status=False)
"""None of `kinds.ALL`: nothing of it is stored."""
VERBS = ["get", "list"]
_NANO = 1_000_000_000
_KIB = 1024


@dataclass(frozen=True)
class Sample:
    """The figures of all containers at one moment (UTC)."""

    at: datetime
    containers: Mapping[ContainerKey, ContainerUsage]


def of(pod: Object, before: Sample, after: Sample) -> Object | None:
    """Return the Pod's metrics; None where no container of it runs.

    Args:
        pod: the object.
        before: an earlier sample; a container that has begun since then is averaged over its life.
        after: the sample that is reported.
    """
    meta = pod["metadata"]
    window = (after.at - before.at).total_seconds()
    containers = []
    for container in pod["spec"]["containers"]:
        where = ContainerKey(meta["namespace"], meta["name"], container["name"])
        if where not in after.containers:
            continue
        now, then = after.containers[where], before.containers.get(where)
        if then is not None and then.started == now.started and window > 0:
            cores = (now.cpu_seconds - then.cpu_seconds) / window
        else:
            cores = now.cpu_seconds / max(after.at.timestamp() - now.started, 0.001)
        usage = {
            "cpu": f"{round(max(cores, 0.0) * _NANO)}n",
            "memory": f"{round(now.working_set) // _KIB}Ki",
        }
        containers.append({"name": container["name"], "usage": usage})
    if not containers:
        return None
    kept = {name: meta[name] for name in ("name", "namespace", "labels") if name in meta}
    return {
        "kind": KIND.kind, "apiVersion": KIND.api_version,
        "metadata": {**kept, "creationTimestamp": _second(after.at)},
        "timestamp": _second(after.at), "window": f"{window:.3f}s", "containers": containers,
    }  # fmt: skip


def listing(items: list[Object]) -> Object:
    """Return the list; its items say what they are, as metrics-server's do not: clients read both."""
    return {"kind": f"{KIND.kind}List", "apiVersion": KIND.api_version, "metadata": {}, "items": items}


def _second(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
