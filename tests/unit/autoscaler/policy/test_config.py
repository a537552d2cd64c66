"""From a spec to the policy's configuration."""

from typing import Any
from zoneinfo import ZoneInfo

import pytest

from autoscaler.policy.config import Metric, Pace, PolicyConfig, Zero, from_spec
from serving import errors


def metric_of(**metric: Any) -> Metric:
    (metric_config,) = from_spec({"metrics": [metric]}).metrics
    return metric_config


def refusal(**schedule: Any) -> errors.Permanent:
    complete = {"name": "office", "start": "0 8 * * *", "end": "0 18 * * *", "minReplicas": 1, **schedule}
    with pytest.raises(errors.Permanent) as caught:
        from_spec({"maxReplicas": 5, "schedules": [complete]})
    assert caught.value.reason == "InvalidSpec"
    return caught.value


def test_spec_with_two_bounds_leaves_the_rest_to_the_policy() -> None:
    assert from_spec({"minReplicas": 0, "maxReplicas": 10}) == PolicyConfig(0, 10)


def test_a_spec_without_bounds_is_a_fixed_count_of_one() -> None:
    assert (from_spec({}).min_replicas, from_spec({}).max_replicas) == (1, 1)


def test_a_latencys_target_is_in_seconds_and_its_percentile_99_where_none_is_given() -> None:
    assert metric_of(type="Latency", target="250ms") == Metric("Latency", "Latency", 0.25)
    assert metric_of(type="Latency", target="2s", percentile=95).percentile == 95


@pytest.mark.parametrize("target", [50, "50"])
def test_quoted_number_equals_the_number(target: int | str) -> None:
    assert metric_of(type="QPS", target=target).target_value == 50.0


def test_metric_without_a_target_uses_the_capacity() -> None:
    assert metric_of(type="TokensPerSecond").target_value is None


def test_metrics_of_one_type_differ_by_their_names() -> None:
    config = from_spec({"metrics": [{"type": "QPS"}, {"type": "QPS", "name": "burst", "target": 9}]})
    assert [metric.name for metric in config.metrics] == ["QPS", "QPS/burst"]


def test_a_query_keeps_its_server() -> None:
    metric = metric_of(type="PromQL", name="", query="sum(x)", target=2, serverAddress="http://p:9090")
    assert (metric.name, metric.query, metric.server) == ("PromQL", "sum(x)", "http://p:9090")


def test_utilization_names_its_resource() -> None:
    assert metric_of(type="Utilization", resource="gpu", target=80) == Metric(
        "Utilization", "Utilization", 80.0, resource="gpu"
    )


def test_behavior_is_in_seconds_replicas_and_percent_and_unlimited_by_default() -> None:
    config = from_spec(
        {
            "behavior": {
                "scaleUp": {"maxReplicasPerMinute": 4, "maxPercentPerMinute": 50},
                "scaleDown": {"stabilizationSeconds": 0},
                "scaleToZero": {"idleSeconds": 30},
            }
        }
    )
    assert (config.up, config.down) == (Pace(4, 50), Pace(stabilization=0.0))
    assert config.zero == Zero(idle=30.0, prewarm=True)


def test_prediction_and_risk_are_read_from_the_spec() -> None:
    config = from_spec({"prediction": {"mode": "Observe"}, "risk": 5})
    assert (config.prediction, config.risk) == ("Observe", 5.0)


def test_a_schedule_without_a_zone_is_in_utc() -> None:
    (schedule,) = from_spec(
        {"schedules": [{"name": "s", "start": "0 8 * * *", "duration": "90m", "minReplicas": 1}]}
    ).schedules
    assert (schedule.zone.key, schedule.duration, schedule.minimum, schedule.maximum) == (
        "UTC",
        5400.0,
        1,
        None,
    )


def test_a_time_zone_that_does_not_exist_is_refused_with_its_field_and_value() -> None:
    for zone in ("Europe/Nowhere", "Europe", "../etc/passwd", ""):
        message = str(refusal(timeZone=zone))
        assert message.startswith("spec.schedules[office].timeZone: ")
        assert repr(zone) in message


def test_a_time_that_never_comes_is_refused_with_its_field_and_value() -> None:
    assert str(refusal(end="0 8 31 4 *")) == (
        "spec.schedules[office].end: '0 8 31 4 *': no such day of such a month ever comes"
    )


def test_a_schedules_minimum_above_the_ordinary_maximum_is_refused() -> None:
    assert str(refusal(minReplicas=6)) == (
        "spec.schedules[office]: minReplicas 6 is greater than maxReplicas 5"
    )


def test_days_have_their_shape_in_the_time_zone_of_the_prediction() -> None:
    config = from_spec({"prediction": {"timeZone": "Europe/Berlin"}})
    assert (config.zone, config.prediction) == (ZoneInfo("Europe/Berlin"), "Enabled")
    with pytest.raises(errors.Permanent, match=r"spec\.prediction\.timeZone: 'Mars/Base'"):
        from_spec({"prediction": {"timeZone": "Mars/Base"}})
