"""The autoscaler's page of metrics: of each Autoscaler the inputs, the forecast, the rule and the count."""

from collections import Counter
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from autoscaler import metrics_page
from autoscaler.decision_values import Band, Decision, MetricNeed
from autoscaler.observation import EngineLoad, Load, Observation, Percentile, Replicas
from autoscaler.policy.config import PolicyConfig, from_spec
from autoscaler.state.target_state import TargetState
from serving.kube import Key

WHO = {"namespace": "n", "autoscaler": "a"}


def samples(**scaled: TargetState) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples of a page, as a Prometheus reads them: labels and value, by name."""
    ticks = metrics_page.Ticks()
    ticks.took(0.5)
    ticks.decided("Load")
    text = metrics_page.text({Key("n", name): target for name, target in scaled.items()}, ticks)
    values: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            values.setdefault(sample.name, []).append((sample.labels, sample.value))
    return values


def decided(decision: Decision, *, is_active: bool = True) -> TargetState:
    return TargetState(PolicyConfig(), decision=decision, is_active=is_active)


def test_a_decision_has_its_inputs_its_forecast_and_its_rule_on_the_page() -> None:
    decision = Decision(
        4,
        "MaxReplicas",
        "7 are needed; the maximum is 4",
        needed=7,
        metric="PromQL/jobs",
        rate=60.0,
        capacity=10.0,
        backlog=3.0,
        startup=42.0,
        forecast=Band(47.0, 50.0, 62.0, 70.0),
        metric_needs=(MetricNeed("QPS", None, "not measured"),),
    )
    page = samples(a=decided(decision))
    values = {
        "desired_replicas": 4,
        "needed_replicas": 7,
        "work_per_second": 60,
        "capacity_per_second": 10,
        "backlog_requests": 3,
        "startup_seconds": 42,
        "forecast_horizon_seconds": 47,
        "forecast_lower": 50,
        "forecast_median": 62,
        "forecast_upper": 70,
        "active": 1,
    }
    for name, value in values.items():
        assert page[f"slipway_autoscaler_{name}"] == [(WHO, value)], name
    info = {**WHO, "rule": "MaxReplicas", "metric": "PromQL/jobs"}
    assert page["slipway_autoscaler_decision_info"] == [(info, 1)]
    assert "slipway_autoscaler_metric_value" not in page, "an unmeasured metric has no value"
    assert page["slipway_autoscaler_decisions_total"] == [({"reason": "Load"}, 1)]
    assert page["slipway_autoscaler_tick_seconds_sum"] == [({}, 0.5)]


def test_every_count_is_exact_when_it_is_above_a_million() -> None:
    ticks = metrics_page.Ticks(count=10_000_019, reasons=Counter(Load=1_234_567, Idle=123_456_789))
    families = text_string_to_metric_families(metrics_page.text({}, ticks))
    values = {sample.value for family in families for sample in family.samples}
    assert values >= {10_000_019, 1_234_567, 123_456_789}


def test_reported_decisions_are_labelled_apart_from_applied_ones() -> None:
    decision = Decision(3, "Load", "m")
    page = samples(a=decided(decision), b=decided(decision, is_active=False), c=TargetState(PolicyConfig()))
    active = [(labels["autoscaler"], value) for labels, value in page["slipway_autoscaler_active"]]
    assert active == [("a", 1), ("b", 0)]
    assert "slipway_autoscaler_forecast_upper" not in page, "without a forecast there is none"


METRICS = [
    ({"type": "QPS", "target": 10}, "QPS", 50.0),
    ({"type": "Concurrency", "target": 2}, "Concurrency", 10.0),
    ({"type": "Latency", "percentile": 95, "target": "250ms"}, "Latency", 0.9),
    ({"type": "TokenQueueDepth", "target": 1000}, "TokenQueueDepth", 4000.0),
    ({"type": "TokensPerSecond", "target": 100}, "TokensPerSecond", 600.0),
    ({"type": "Utilization", "resource": "gpu", "target": 50}, "Utilization", 80.0),
    ({"type": "PromQL", "name": "jobs", "query": "sum(jobs)", "target": 4}, "PromQL/jobs", 24.0),
]


@pytest.mark.parametrize(("metric", "name", "value"), METRICS, ids=[m[1] for m in METRICS])
def test_each_metric_of_every_type_has_its_value_and_its_need_on_the_page(
    metric: dict[str, Any], name: str, value: float
) -> None:
    config = from_spec({"minReplicas": 1, "maxReplicas": 50, "metrics": [metric]})
    scaled = TargetState(PolicyConfig())
    scaled.configure(config)
    gauge = value / 100 if metric["type"] == "Utilization" else value
    for now in range(0, 300, 5):
        load = Load(now, now + 5, 250, 250, 250, 10, 0, 0.2)
        scaled.decision = scaled.decide(
            Observation(
                now + 5,
                Replicas(4, 4),
                load,
                {name: gauge},
                {name: Percentile(value, 100)},
                EngineLoad(value, 4, 8.0, 0.9),
            )
        )
    page = samples(a=scaled)
    (metric_need,) = scaled.decision.metric_needs
    assert metric_need.needed is not None
    ((labels, shown),) = page["slipway_autoscaler_metric_value"]
    assert labels == {**WHO, "metric": name}
    assert shown == pytest.approx(metric_need.value, rel=1e-5)
    assert shown == pytest.approx(value, rel=0.4), (
        "a rate is one to be ready for, and so is what is made of it"
    )
    assert page["slipway_autoscaler_metric_needed_replicas"] == [(labels, metric_need.needed)]
    ((info, _),) = page["slipway_autoscaler_decision_info"]
    assert info["metric"] == name
