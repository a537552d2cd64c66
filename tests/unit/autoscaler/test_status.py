"""What an Autoscaler's status and page of metrics say of decisions."""

from autoscaler import status
from autoscaler.observation import Capacity, Load, Observation, Replicas
from autoscaler.policy.config import Metric, PolicyConfig, Zero
from autoscaler.state.target_state import TargetState
from serving.resources.autoscaler import AutoscalerStatus

START = 1_700_006_400.0


def scaled(config: PolicyConfig, readings: int = 20) -> TargetState:
    target = TargetState(config)
    for step in range(readings):
        now = START + 5 * step
        started = (42.0,) if step == 3 else ()
        load = Load(now - 5, now, 50.0, 50.0, 50.0, 3.0, 0.0, 0.1)
        target.decision = target.decide(Observation(now, Replicas(2, 2, started=started), load))
    return target


def test_fingerprint_of_a_status_differs_when_others_write_more_than_demand() -> None:
    own = status.fingerprint({"desiredReplicas": 1})
    assert status.fingerprint({"demand": [{"name": "gw"}], "desiredReplicas": 1}) == own
    assert status.fingerprint({"desiredReplicas": 1, "reason": "mine"}) != own


def test_startup_keep_alive_and_capacity_are_reported_once_known() -> None:
    fresh = TargetState(PolicyConfig(0, 9))
    assert fresh.learned_status(START) is None
    learned = scaled(PolicyConfig(0, 9, capacity=Capacity(10.0, 2.0))).learned_status(START + 100)
    assert learned is not None
    assert learned["startupSeconds"] == 42.0
    assert learned["keepAliveSeconds"] > 0
    assert learned["capacity"]["source"] == "Profile"
    AutoscalerStatus.model_validate({"learned": learned})


def test_corrected_capacity_is_not_reported_as_measured() -> None:
    target = TargetState(PolicyConfig(1, 9, capacity=Capacity(10.0, 2.0)))
    for step in range(60):
        now = START + 5 * step
        load = Load(now - 5, now, 50.0, 50.0, 25.0, 60.0, 0.0, 9.0)  # saturated at half of it
        target.decide(Observation(now, Replicas(1, 1), load))
    learned = target.learned_status(START + 300)
    assert learned is not None
    assert learned["capacity"]["source"] == "Corrected"
    assert learned["capacity"]["rate"] < 9
    AutoscalerStatus.model_validate({"learned": learned})


def test_keep_alive_is_that_of_the_spec_and_absent_without_scale_to_zero() -> None:
    learned = scaled(PolicyConfig(0, 9, zero=Zero(idle=120.0))).learned_status(START)
    assert learned is not None
    assert learned["keepAliveSeconds"] == 120.0
    assert "keepAliveSeconds" not in (scaled(PolicyConfig(1, 9)).learned_status(START) or {})


def test_each_metric_has_its_target_its_value_and_its_need() -> None:
    qps, latency = Metric("QPS", "QPS", 5.0), Metric("Latency", "Latency", 0.25)
    decision = scaled(PolicyConfig(1, 9, metrics=(qps, latency), capacity=Capacity(10.0, 2.0))).decision
    assert decision is not None
    first, second = status.metrics((qps, latency), decision.metric_needs)
    assert (first["name"], first["target"]) == ("QPS", 5.0)
    assert first["needed"] >= 2
    assert first["value"] >= 9
    assert (second["target"], second["message"]) == (0.25, "not measured")
    assert "value" not in second
    AutoscalerStatus.model_validate({"metrics": [first, second]})


def test_requests_are_reported_when_the_spec_has_no_metric() -> None:
    decision = scaled(PolicyConfig(1, 9, capacity=Capacity(10.0, 2.0))).decision
    assert decision is not None
    (entry,) = status.metrics((), decision.metric_needs)
    assert entry["name"] == "QPS"
    assert entry["needed"] == decision.needed


def test_small_change_of_a_metric_is_not_reported() -> None:
    old = {"metrics": [{"name": "QPS", "value": 10.0, "needed": 2}]}
    assert not status.is_news(old, {"metrics": [{"name": "QPS", "value": 10.9, "needed": 2}]})
    for other in (
        {"name": "QPS", "value": 14.0, "needed": 2},
        {"name": "QPS", "needed": 2},
        {"name": "QPS", "value": 10.0, "needed": 3},
        {"name": "Latency", "value": 10.0, "needed": 2},
    ):
        assert status.is_news(old, {"metrics": [other]})


def test_defaults_that_the_schema_adds_to_a_stored_status_are_no_reason_for_a_write() -> None:
    written = {"desiredReplicas": 1, "currentReplicas": 1, "readyReplicas": 0, "conditions": []}
    stored = {**written, "selector": "", "lastScaleTime": ""}
    assert not status.is_urgent(stored, written)
    assert status.is_urgent({**stored, "selector": "app=x"}, written)
    assert status.is_urgent(stored, {**written, "readyReplicas": 1})
