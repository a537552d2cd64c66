"""The node's metrics for Prometheus: the phases of replicas' starts, and their usage."""

from contextlib import AbstractAsyncContextManager

from prometheus_client import CollectorRegistry, Histogram

from serving import metrics
from serving.data_dir import DataDir
from serving.embedded.kubelet.devices.gpus import Gpus
from serving.embedded.kubelet.pod.start_trace import StartTrace
from serving.embedded.kubelet.resources.usage import UsageCollector
from serving.objects import Object
from serving.resources import names
from serving.system.isolation.cgroup_layout import CgroupLayout


class NodeMetrics:
    """One registry per agent."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._starts = Histogram(
            "slipway_start_phase_seconds",
            "Seconds of a replica's start, by phase; a start's phases add up to it.",
            ["namespace", "inference", "predictor", "phase", "kind"],
            registry=self._registry,
            buckets=metrics.START_BUCKETS,
        )

    def started(self, pod: Object, trace: StartTrace) -> None:
        """Observe the phases of one start.

        The label `kind` is cold or zygote; `inference` and `predictor` are empty for Pods of no Inference.
        """
        labels = pod["metadata"].get("labels") or {}
        inference, predictor = labels.get(names.INFERENCE_LABEL, ""), labels.get(names.PREDICTOR_LABEL, "")
        for phase in names.START_PHASES:
            self._starts.labels(
                pod["metadata"]["namespace"], inference, predictor, phase, trace.method.lower()
            ).observe(trace.seconds[phase])

    def served(
        self, data_dir: DataDir, layout: CgroupLayout, host: str, port: int
    ) -> AbstractAsyncContextManager[metrics.MetricsPage]:
        """Serve `GET /metrics` during the block, with the usage from the cgroups of `layout`."""
        self._registry.register(UsageCollector(data_dir.pods, layout, Gpus()))
        pages = {metrics.PATH: metrics.of_registry(self._registry)}
        return metrics.served(pages, data_dir.metrics("node"), host, port)
