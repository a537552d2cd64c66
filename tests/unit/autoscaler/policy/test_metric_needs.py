from autoscaler.observation import Observation, Replicas
from autoscaler.policy.config import Metric, PolicyConfig
from autoscaler.policy.metric_needs import metric_needs
from autoscaler.policy.sizer import Sizer

FOUR = Replicas(desired=4, ready=4)


def needed(
    metric: Metric, gauges: dict[str, float] | None = None, rate: float = 0, latency: float = 0
) -> int | None:
    return metric_needs([metric], gauges or {}, FOUR, rate, latency)[0].needed


def test_qps_asks_for_the_rate_over_the_target_when_both_are_known():
    assert needed(Metric("QPS", "QPS", 50), rate=120) == 3


def test_concurrency_asks_by_littles_law_when_the_latency_is_known():
    assert needed(Metric("Concurrency", "Concurrency", 2), rate=10, latency=0.5) == 3


def test_utilisation_changes_nothing_when_it_is_near_its_target():
    metric = Metric("Utilization", "Utilization", 80, resource="cpu")
    assert needed(metric, {"Utilization": 0.85}) == 4
    assert needed(metric, {"Utilization": 0.4}) == 2
    assert needed(metric, {"Utilization": 8.0}) == 8


def test_a_queue_asks_for_twice_the_ready_replicas_at_most_when_it_winds_up():
    assert needed(Metric("TokenQueueDepth", "TokenQueueDepth", 100), {"TokenQueueDepth": 1e9}) == 8


def test_a_metric_asks_for_nothing_when_it_is_absent_or_absurd():
    metric = Metric("PromQL/jobs", "PromQL", 5)
    for gauges in ({}, {"PromQL/jobs": float("nan")}, {"PromQL/jobs": -1.0}):
        assert needed(metric, gauges) is None
    assert needed(metric, {"PromQL/jobs": 11}) == 3


def test_the_sizer_follows_a_query_when_no_gateway_counts_the_target():
    config = PolicyConfig(max_replicas=9, metrics=(Metric("PromQL/jobs", "PromQL", 5),))
    sizer = Sizer(config)
    decision = sizer.decide(Observation(1000.0, FOUR, None, {"PromQL/jobs": 31.0}))
    assert (decision.replicas, decision.metric) == (7, "PromQL/jobs")
    assert sizer.decide(Observation(1005.0, FOUR, None, {})).replicas == 4


def decided(sizer: Sizer, now: float, waiting: float) -> tuple[int, str, str]:
    observation = Observation(now, FOUR, None, gauges={"TokenQueueDepth": waiting})
    decision = sizer.decide(observation)
    return decision.replicas, decision.reason, decision.message


def test_the_reason_of_a_held_count_is_what_was_needed_when_the_queue_has_gone():
    metric = Metric("TokenQueueDepth", "TokenQueueDepth", 100)
    sizer = Sizer(PolicyConfig(max_replicas=5, metrics=(metric,)))
    assert decided(sizer, 0.0, 450) == (5, "Metric", "TokenQueueDepth: 450 at 100 each")
    assert decided(sizer, 1.0, 50) == (
        5,
        "Held",
        "1 needed now; 5 needed within the stabilization window",
    )
