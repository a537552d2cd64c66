"""The kubelet's container metrics: their names, and a parser.

https://github.com/google/cadvisor/blob/master/docs/storage/prometheus.md. The node writes them on
one machine, every kubelet on a cluster, at `/metrics/cadvisor`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

PATH = "metrics/cadvisor"
"""Below `/api/v1/nodes/NAME/proxy/`."""

CPU_SECONDS = "container_cpu_usage_seconds_total"
PERIODS = "container_cpu_cfs_periods_total"
THROTTLED_PERIODS = "container_cpu_cfs_throttled_periods_total"
THROTTLED_SECONDS = "container_cpu_cfs_throttled_seconds_total"
WORKING_SET = "container_memory_working_set_bytes"
RSS = "container_memory_rss"
PEAK = "container_memory_max_usage_bytes"
OOM_EVENTS = "container_oom_events_total"
STARTED = "container_start_time_seconds"
GPU_DUTY = "container_accelerator_duty_cycle"
"""Percent of the last sample period in which the GPU was busy; cAdvisor's name until Kubernetes 1.27."""
GPU_MEMORY = "container_accelerator_memory_used_bytes"

_PERCENT = 100.0

MACHINE_CORES = "machine_cpu_cores"
MACHINE_MEMORY = "machine_memory_bytes"
MACHINE_INFO = "slipway_machine_info"
"""Our own: labels `cpu`, `cores` and `gpu` describe the machine; the value is 1."""


class ContainerKey(NamedTuple):
    """One container of one Pod."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True)
class ContainerUsage:
    """Resource usage of a container; its counters start at 0 with every run."""

    cpu_seconds: float = 0.0
    periods: float = 0.0
    """Enforcement periods (100 ms each) of its CPU limit in which it ran."""
    throttled_periods: float = 0.0
    """Of these, the periods in which it was throttled."""
    throttled_seconds: float = 0.0
    working_set: float = 0.0
    """Bytes that the kernel cannot easily reclaim; on one machine at least the resident set."""
    rss: float = 0.0
    """Bytes, without page cache."""
    peak: float = 0.0
    """Peak bytes since the run began."""
    oom_events: float = 0.0
    started: float = 0.0
    """Unix seconds."""
    gpu_duty: float = 0.0
    """Percent, the sum over its GPUs."""
    gpus: float = 0.0
    """GPUs whose duty cycle is known."""
    gpu_memory: float = 0.0
    """Bytes."""
    at: float = 0.0
    """Unix time of the sample, if the node reports it: cAdvisor samples every 10 to 15 s, not on request."""

    @property
    def gpu_share(self) -> float | None:
        """The mean duty cycle of its GPUs, 0 to 1; None if unknown, or without a GPU."""
        return self.gpu_duty / self.gpus / _PERCENT if self.gpus else None


_FIELDS = {
    CPU_SECONDS: "cpu_seconds",
    PERIODS: "periods",
    THROTTLED_PERIODS: "throttled_periods",
    THROTTLED_SECONDS: "throttled_seconds",
    WORKING_SET: "working_set",
    RSS: "rss",
    PEAK: "peak",
    OOM_EVENTS: "oom_events",
    STARTED: "started",
    GPU_DUTY: "gpu_duty",
    GPU_MEMORY: "gpu_memory",
}
_SUMMED = frozenset({CPU_SECONDS, GPU_DUTY, GPU_MEMORY})
"""Metrics that cAdvisor may split by processor or by GPU."""


def containers(text: str) -> dict[ContainerKey, ContainerUsage]:
    """Return the usage of every container, without totals of Pods and without sandboxes (`POD`).

    Raises:
        ValueError: the text is not in the Prometheus exposition format.
    """
    usages: dict[ContainerKey, ContainerUsage] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            field, labels = _FIELDS.get(sample.name), sample.labels
            container = labels.get("container", "")
            if field is None or container in ("", "POD"):
                continue
            key = ContainerKey(labels.get("namespace", ""), labels.get("pod", ""), container)
            known = usages.get(key, ContainerUsage())
            before = getattr(known, field) if sample.name in _SUMMED else 0.0
            at = max(known.at, float(sample.timestamp or 0.0))
            gpus = known.gpus + (sample.name == GPU_DUTY)
            usages[key] = replace(known, **{field: before + float(sample.value), "at": at, "gpus": gpus})
    return usages


def machine(text: str) -> Mapping[str, str]:
    """Return the node's description of itself (`cpu`, `cores`, `gpu`); empty for a cluster's node."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == MACHINE_INFO:
                return dict(sample.labels)
    return {}
