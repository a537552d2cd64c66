"""The policy of a Route, and Envoy's form of it."""

from typing import Any

from serving.router.envoy import clusters
from serving.router.envoy.routes import virtual_host
from serving.router.plan.policy import (
    ClusterPolicy,
    EjectionPolicy,
    RetryPolicy,
    RoutePolicy,
    cluster_policy,
    effective_retries,
    route_policy,
)
from serving.router.plan.service import Cluster, gateway_service
from serving.settings import GatewaySettings
from tests.rig.servers.gateway import endpoint_slice, route

SETTINGS = GatewaySettings()


def test_a_route_without_policy_has_the_defaults() -> None:
    assert route_policy(route("digits", [("a", 10_000)])["spec"]) == RoutePolicy()


def test_every_field_of_a_route_is_read() -> None:
    spec = {
        "timeouts": {"request": "1m", "perTry": "250ms"},
        "retries": {"on": ["Lost"], "attempts": 0, "budgetPercent": 5, "acrossPredictors": False},
    }
    retries = RetryPolicy(causes=frozenset({"Lost"}), attempts=0, across_clusters=False)
    assert route_policy(spec) == RoutePolicy(60.0, 0.25, retries)
    assert cluster_policy(spec, {}) == ClusterPolicy(retry_budget_percent=5)


def test_every_field_of_a_backend_is_read() -> None:
    backend = {
        "timeouts": {"request": "3s"},
        "retries": {"on": ["Unavailable"], "budgetPercent": 7},
        "ejection": {
            "consecutiveFailures": 1,
            "consecutiveServerErrors": 2,
            "duration": "4s",
            "maxPercent": 8,
        },
        "limits": {"requests": 6},
    }
    assert cluster_policy({"retries": {"on": ["Lost"], "budgetPercent": 5}}, backend) == ClusterPolicy(
        answer_timeout=3.0,
        retries=RetryPolicy(causes=frozenset({"Unavailable"})),
        max_requests=6,
        retry_budget_percent=7,
        ejection=EjectionPolicy(1, 2, 4.0, 8),
    )


def test_a_backend_without_retries_has_those_of_its_route() -> None:
    spec = {"retries": {"on": ["Unsent", "Lost"], "attempts": 4}}
    assert effective_retries(spec, {}) == RetryPolicy(frozenset({"Unsent", "Lost"}), 4)
    assert effective_retries(spec, {"retries": {"on": ["Unsent"]}}) == RetryPolicy(frozenset({"Unsent"}))
    assert effective_retries({}, {}) == RetryPolicy()


def test_sticky_callers_change_their_predictor_only_by_a_rule_of_the_route() -> None:
    for across, expected in ((None, False), (True, True), (False, False)):
        spec: dict[str, Any] = {"sticky": {"header": "x-user", "salt": "s"}, "retries": {}}
        if across is not None:
            spec["retries"]["acrossPredictors"] = across
        assert route_policy(spec).retries.across_clusters is expected


def test_a_cluster_without_ejection_has_no_outlier_detection() -> None:
    never = ClusterPolicy(ejection=EjectionPolicy(consecutive_failures=0))
    assert not clusters.cluster(Cluster("a", (), policy=never), SETTINGS).HasField("outlier_detection")
    assert clusters.cluster(Cluster("a", ()), SETTINGS).HasField("outlier_detection")


def test_server_errors_alone_eject_without_counting_failures() -> None:
    policy = ClusterPolicy(ejection=EjectionPolicy(consecutive_failures=0, consecutive_server_errors=4))
    detection = clusters.cluster(Cluster("a", (), policy=policy), SETTINGS).outlier_detection
    assert (detection.consecutive_5xx.value, detection.enforcing_consecutive_5xx.value) == (4, 100)
    assert detection.enforcing_consecutive_gateway_failure.value == 0


def test_failures_count_as_server_errors_where_these_are_counted() -> None:
    policy = ClusterPolicy(ejection=EjectionPolicy(consecutive_failures=3, consecutive_server_errors=8))
    detection = clusters.cluster(Cluster("a", (), policy=policy), SETTINGS).outlier_detection
    assert (detection.consecutive_5xx.value, detection.enforcing_consecutive_5xx.value) == (8, 100)
    assert detection.enforcing_consecutive_gateway_failure.value == 0


def test_a_try_timeout_is_off_while_requests_wait_for_a_replica() -> None:
    digits = route("digits", [("a", 10_000)], on_demand="a")
    digits["spec"]["timeouts"] = {"perTry": "2s"}
    up = {"digits-a": [endpoint_slice("digits-a", ["127.77.0.2"])]}
    at_zero, started = (virtual_host(gateway_service(digits, slices), "", SETTINGS) for slices in ({}, up))
    without = virtual_host(gateway_service(route("digits", [("a", 10_000)], on_demand="a"), up), "", SETTINGS)
    assert at_zero == without
    assert started != without
