"""PodMetrics from two looks at the counters."""

from datetime import UTC, datetime, timedelta
from typing import Any

from serving.embedded.apiserver.discovery import api_groups
from serving.embedded.apiserver.pods import pod_metrics
from serving.embedded.apiserver.pods.pod_metrics import Sample
from serving.resources.cadvisor import ContainerKey, ContainerUsage

NOW = datetime(2026, 11, 22, 5, 0, tzinfo=UTC)
MAIN = ContainerKey("ns", "p", "main")
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b"}, "uid": "u"},
    "spec": {"containers": [{"name": "main"}, {"name": "side"}]},
}


def _look(seconds: float, **figures: float) -> Sample:
    return Sample(NOW + timedelta(seconds=seconds), {MAIN: ContainerUsage(**figures)})


def _usage(before: Sample, after: Sample) -> dict[str, str]:
    found = pod_metrics.of(POD, before, after)
    assert found is not None
    (container,) = found["containers"]
    usage: dict[str, str] = container["usage"]
    return usage


def test_processor_is_what_was_added_over_the_window() -> None:
    found = pod_metrics.of(
        POD, _look(0, cpu_seconds=1, started=5), _look(2, cpu_seconds=1.5, started=5, working_set=2048)
    )
    assert found == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {
            "name": "p", "namespace": "ns", "labels": {"a": "b"}, "creationTimestamp": "2026-11-22T05:00:02Z",
        },
        "timestamp": "2026-11-22T05:00:02Z",
        "window": "2.000s",
        "containers": [{"name": "main", "usage": {"cpu": "250000000n", "memory": "2Ki"}}],
    }  # fmt: skip


def test_a_container_that_was_started_again_is_averaged_over_its_life() -> None:
    begun = NOW.timestamp()
    before = _look(0, cpu_seconds=900, started=begun - 100)
    assert _usage(before, _look(4, cpu_seconds=1, started=begun))["cpu"] == "250000000n"


def test_a_pod_of_which_nothing_runs_has_no_metrics() -> None:
    assert pod_metrics.of(POD, Sample(NOW, {}), Sample(NOW, {})) is None


def test_discovery_names_the_metrics_beside_the_pods() -> None:
    found = api_groups.resources("metrics.k8s.io", "v1beta1")
    assert found is not None
    assert [(entry["name"], entry["verbs"]) for entry in found["resources"]] == [("pods", ["get", "list"])]
    assert "metrics.k8s.io" in api_groups.group_names()
