"""Clusters, and apart from them their endpoints (docs/decisions/envoy-configuration.md)."""

from collections.abc import Sequence
from typing import Any

from serving.router.plan.service import Cluster
from serving.settings import GatewaySettings

_TYPE = "type.googleapis.com/"
_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def cluster(cluster: Cluster, settings: GatewaySettings) -> dict[str, Any]:
    """Return one Envoy cluster."""
    unlimited = settings.max_requests
    return {
        "@type": f"{_TYPE}envoy.config.cluster.v3.Cluster",
        "name": cluster.name,
        "type": "EDS",
        "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}},
        "connect_timeout": f"{settings.connect_timeout_seconds}s",
        # Round robin queues behind a slow replica; least request of two random choices does not.
        "lb_policy": "LEAST_REQUEST",
        # Half of the replicas gone must not mean that the dead ones get traffic again.
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "circuit_breakers": {
            "thresholds": [
                {
                    "max_connections": unlimited,
                    "max_pending_requests": unlimited,
                    "max_requests": unlimited,
                    "retry_budget": {
                        "budget_percent": {"value": settings.retry_budget_percent},
                        # What no replica took waits at the activator, which has bounds of its own.
                        "min_retry_concurrency": unlimited
                        if cluster.on_demand
                        else settings.retry_min_concurrency,
                    },
                }
            ]
        },
        "typed_extension_protocol_options": {
            _HTTP_OPTIONS: {
                "@type": _TYPE + _HTTP_OPTIONS,
                "common_http_protocol_options": {"idle_timeout": f"{settings.upstream_idle_seconds}s"},
                "explicit_http_config": {"http_protocol_options": {}},
            }
        },
    }


def load_assignment(cluster: Cluster, activators: str) -> dict[str, Any]:
    """Return a cluster's endpoints: its replicas, and behind them the activator's socket where it is on demand.

    Envoy sends there while there is no replica, and what no replica took (see `routes`).

    Args:
        cluster: the cluster.
        activators: the folder of the activator's sockets.
    """
    replicas = [{"socket_address": {"address": e.address, "port_value": e.port}} for e in cluster.endpoints]
    socket = [{"pipe": {"path": f"{activators}/{cluster.socket}"}}] if cluster.on_demand else []
    found = [_locality(replicas), {**_locality(socket), "priority": 1}] if socket else [_locality(replicas)]
    return {
        "@type": f"{_TYPE}envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": cluster.name,
        "endpoints": found if replicas or socket else [],
    }


def _locality(addresses: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"lb_endpoints": [{"endpoint": {"address": address}} for address in addresses]}
