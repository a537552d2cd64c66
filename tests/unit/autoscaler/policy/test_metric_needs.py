from zoneinfo import ZoneInfo

from autoscaler.observation import Load, Observation, Replicas
from autoscaler.policy.config import Metric, Pace, PolicyConfig
from autoscaler.policy.limits.cron import Cron
from autoscaler.policy.limits.schedules import Schedule
from autoscaler.policy.metric_needs import needs_without_learning
from autoscaler.policy.sizer import Sizer

FOUR = Replicas(desired=4, ready=4)


def needed(
    metric: Metric, gauges: dict[str, float] | None = None, rate: float = 0, latency: float = 0
) -> int | None:
    return needs_without_learning([metric], gauges or {}, FOUR, rate, latency)[0].needed


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
        "ScaleDownStabilized",
        "1 needed now; 5 needed within the stabilization window",
    )


def test_behavior_limits_the_count_of_a_queue_when_no_gateway_counts_the_target():
    metric = Metric("TokenQueueDepth", "TokenQueueDepth", 100)
    sizer = Sizer(PolicyConfig(max_replicas=50, metrics=(metric,), up=Pace(replicas_per_minute=2)))
    assert decided(sizer, 0.0, 800) == (6, "PaceLimited", "8 are needed; behavior allows 6 now")


def test_behavior_limits_the_count_when_a_query_needs_replicas_of_a_target_at_zero():
    jobs = Metric("PromQL/jobs", "PromQL", 5)
    sizer = Sizer(PolicyConfig(0, 50, metrics=(jobs,), up=Pace(replicas_per_minute=1)))
    decision = sizer.decide(Observation(1000.0, Replicas(0, 0), None, {"PromQL/jobs": 50.0}))
    assert (decision.replicas, decision.reason) == (1, "PaceLimited")


def test_a_schedule_is_named_when_it_bounds_the_count_of_a_queue():
    night = Schedule("night", Cron.parse("* * * * *"), ZoneInfo("UTC"), duration=3600.0, minimum=3, maximum=6)
    metric = Metric("TokenQueueDepth", "TokenQueueDepth", 100)
    sizer = Sizer(PolicyConfig(max_replicas=50, metrics=(metric,), schedules=(night,)))
    message = "8 are needed; the maximum is 6 by the schedule night"
    assert decided(sizer, 0.0, 800) == (6, "MaxReplicas", message)


def test_concurrency_asks_for_nothing_when_the_latency_is_unknown():
    assert needed(Metric("Concurrency", "Concurrency", 2), rate=10) is None


def test_capacity_sizes_a_target_when_the_latency_of_its_concurrency_is_unknown():
    """Requests that overtake the only replica from its first second on have no latency without waiting."""
    sizer = Sizer(PolicyConfig(max_replicas=20, metrics=(Metric("Concurrency", "Concurrency", 4),)))
    desired = 1
    for i in range(40):
        load = Load(1000 + 5 * i, 1005 + 5 * i, 200, 200, 50 * desired, 150.0 * i, 0.0, 2.5 * i + 1)
        decision = sizer.decide(Observation(load.end, Replicas(desired, 1), load))
        desired = decision.replicas
    assert desired > 1
