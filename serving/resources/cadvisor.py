"""The kubelet's metrics of containers, as far as we write and read them: their names, and text → figures by container.

https://github.com/google/cadvisor/blob/master/docs/storage/prometheus.md. On one machine the node agent writes them; on
a cluster every kubelet does, at `/metrics/cadvisor`.
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
"""Percent of the last sample's time in which the GPU worked; cAdvisor's name until 1.27."""
GPU_MEMORY = "container_accelerator_memory_used_bytes"

MACHINE_CORES = "machine_cpu_cores"
MACHINE_MEMORY = "machine_memory_bytes"
MACHINE_INFO = "slipway_machine_info"
"""Ours: labels `cpu`, `cores` and `gpu` in words, value 1."""


class Where(NamedTuple):
    """One container of one Pod."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True)
class Figures:
    """What a container has used; counters begin anew with every run of it."""

    cpu_seconds: float = 0.0
    periods: float = 0.0
    """Of its processor limit (100 ms each), in which it ran."""
    throttled_periods: float = 0.0
    """Of these, in which it was held back."""
    throttled_seconds: float = 0.0
    working_set: float = 0.0
    """Bytes that the kernel cannot easily take back; on one machine never less than what is resident."""
    rss: float = 0.0
    """Bytes, without files."""
    peak: float = 0.0
    """Most bytes since the run began."""
    oom_events: float = 0.0
    started: float = 0.0
    """Unix seconds."""
    gpu_duty: float = 0.0
    """Percent."""
    gpu_memory: float = 0.0
    """Bytes."""
    at: float = 0.0
    """Unix seconds of the reading, where the node says it: cAdvisor looks every 10 to 15 s, whenever it is asked."""


_FIELDS = {
    CPU_SECONDS: "cpu_seconds", PERIODS: "periods", THROTTLED_PERIODS: "throttled_periods",
    THROTTLED_SECONDS: "throttled_seconds", WORKING_SET: "working_set", RSS: "rss", PEAK: "peak",
    OOM_EVENTS: "oom_events", STARTED: "started", GPU_DUTY: "gpu_duty", GPU_MEMORY: "gpu_memory",
}  # fmt: skip
_SUMMED = frozenset({CPU_SECONDS, GPU_DUTY, GPU_MEMORY})
"""What cAdvisor may tell in parts: by processor, by GPU."""


def containers(text: str) -> dict[Where, Figures]:
    """Return the figures of every container; lines of whole Pods and of sandboxes (`POD`) are left out.

    Raises:
        ValueError: the text is no Prometheus exposition.
    """
    found: dict[Where, Figures] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            field, labels = _FIELDS.get(sample.name), sample.labels
            container = labels.get("container", "")
            if field is None or container in ("", "POD"):
                continue
            where = Where(labels.get("namespace", ""), labels.get("pod", ""), container)
            known = found.get(where, Figures())
            before = getattr(known, field) if sample.name in _SUMMED else 0.0
            at = max(known.at, float(sample.timestamp or 0.0))
            found[where] = replace(known, **{field: before + float(sample.value), "at": at})
    return found


def machine(text: str) -> Mapping[str, str]:
    """Return what the node says of itself: `cpu`, `cores`, `gpu`; empty where it is no node of ours."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == MACHINE_INFO:
                return dict(sample.labels)
    return {}
