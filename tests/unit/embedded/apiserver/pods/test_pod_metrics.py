"""PodMetrics from two samples of the counters."""

from datetime import UTC, datetime, timedelta
from typing import Any

from serving.embedded.apiserver.discovery import api_groups
from serving.embedded.apiserver.pods import pod_metrics
from serving.embedded.apiserver.pods.pod_metrics import Sample
from serving.resources.formats.cadvisor import ContainerKey, ContainerUsage
from tests.objects.stored_kinds import SERVED_KINDS

NOW = datetime(2026, 11, 22, 5, 0, tzinfo=UTC)
MAIN = ContainerKey("ns", "p", "main")
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b"}, "uid": "u"},
    "spec": {"containers": [{"name": "main"}, {"name": "side"}]},
}


def _sample(seconds: float, **counters: float) -> Sample:
    return Sample(NOW + timedelta(seconds=seconds), {MAIN: ContainerUsage(**counters)})


def _usage(before: Sample, after: Sample) -> dict[str, str]:
    metrics = pod_metrics.of(POD, before, after)
    assert metrics is not None
    (container,) = metrics["containers"]
    usage: dict[str, str] = container["usage"]
    return usage


def test_cpu_usage_is_the_average_over_the_window() -> None:
    metrics = pod_metrics.of(
        POD, _sample(0, cpu_seconds=1, started=5), _sample(2, cpu_seconds=1.5, started=5, working_set=2048)
    )
    assert metrics == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "labels": {"a": "b"},
            "creationTimestamp": "2026-11-22T05:00:02Z",
        },
        "timestamp": "2026-11-22T05:00:02Z",
        "window": "2.000s",
        "containers": [{"name": "main", "usage": {"cpu": "250000000n", "memory": "2Ki"}}],
    }


def test_cpu_usage_of_a_restarted_container_is_the_average_over_its_life() -> None:
    started = NOW.timestamp()
    before = _sample(0, cpu_seconds=900, started=started - 100)
    assert _usage(before, _sample(4, cpu_seconds=1, started=started))["cpu"] == "250000000n"


def test_a_pod_without_running_containers_has_no_metrics() -> None:
    assert pod_metrics.of(POD, Sample(NOW, {}), Sample(NOW, {})) is None


def test_discovery_lists_pod_metrics() -> None:
    resources = api_groups.resources(SERVED_KINDS, "metrics.k8s.io", "v1beta1")
    assert resources is not None
    assert [(entry["name"], entry["verbs"]) for entry in resources["resources"]] == [
        ("pods", ["get", "list"])
    ]
    assert "metrics.k8s.io" in api_groups.group_names(SERVED_KINDS)
