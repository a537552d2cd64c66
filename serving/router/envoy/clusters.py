"""Envoy's clusters, and their endpoints as separate resources (docs/decisions/envoy-configuration.md)."""

from collections.abc import Sequence

from google.protobuf.wrappers_pb2 import UInt32Value

from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy.resource import duration, pack
from serving.router.plan.service import Cluster
from serving.settings import GatewaySettings

_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def cluster(cluster: Cluster, settings: GatewaySettings) -> envoy.Cluster:
    """Return one Envoy cluster."""
    unlimited = UInt32Value(value=settings.max_requests)
    # Requests that no replica accepted wait at the activator, which has its own bounds.
    retries = unlimited if cluster.on_demand else UInt32Value(value=settings.retry_min_concurrency)
    options = envoy.HttpProtocolOptions(
        common_http_protocol_options=envoy.CommonHttpProtocolOptions(
            idle_timeout=duration(settings.upstream_idle_seconds)
        ),
        explicit_http_config=envoy.HttpProtocolOptions.ExplicitHttpConfig(
            http_protocol_options=envoy.Http1ProtocolOptions()
        ),
    )
    return envoy.Cluster(
        name=cluster.name,
        type=envoy.Cluster.EDS,
        eds_cluster_config=envoy.Cluster.EdsClusterConfig(
            eds_config=envoy.ConfigSource(
                ads=envoy.AggregatedConfigSource(), resource_api_version=envoy.ApiVersion.V3
            )
        ),
        connect_timeout=duration(settings.connect_timeout_seconds),
        # Round robin queues behind a slow replica; least request of two random choices does not.
        lb_policy=envoy.Cluster.LEAST_REQUEST,
        # With half of the replicas gone, the dead ones must not get traffic again.
        common_lb_config=envoy.Cluster.CommonLbConfig(healthy_panic_threshold=envoy.Percent(value=0)),
        circuit_breakers=envoy.CircuitBreakers(
            thresholds=[
                envoy.CircuitBreakers.Thresholds(
                    max_connections=unlimited,
                    max_pending_requests=unlimited,
                    max_requests=unlimited,
                    retry_budget=envoy.CircuitBreakers.Thresholds.RetryBudget(
                        budget_percent=envoy.Percent(value=settings.retry_budget_percent),
                        min_retry_concurrency=retries,
                    ),
                )
            ]
        ),
        typed_extension_protocol_options={_HTTP_OPTIONS: pack(options)},
    )


def load_assignment(cluster: Cluster, activator_folder: str) -> envoy.ClusterLoadAssignment:
    """Return a cluster's endpoints: its replicas and, with lower priority, the activator if it is on demand.

    The activator gets requests while there is no replica, and requests that no replica accepted (see
    `routes`).

    Args:
        cluster: the cluster.
        activator_folder: the folder of the activator's sockets.
    """
    replicas = [
        envoy.Address(socket_address=envoy.SocketAddress(address=e.address, port_value=e.port))
        for e in cluster.endpoints
    ]
    localities = [_locality(replicas)] if replicas or cluster.on_demand else []
    if cluster.on_demand:
        socket = envoy.Address(pipe=envoy.Pipe(path=f"{activator_folder}/{cluster.socket}"))
        localities.append(_locality([socket], priority=1))
    return envoy.ClusterLoadAssignment(cluster_name=cluster.name, endpoints=localities)


def _locality(addresses: Sequence[envoy.Address], priority: int = 0) -> envoy.LocalityLbEndpoints:
    endpoints = [envoy.LbEndpoint(endpoint=envoy.Endpoint(address=address)) for address in addresses]
    return envoy.LocalityLbEndpoints(lb_endpoints=endpoints, priority=priority)
