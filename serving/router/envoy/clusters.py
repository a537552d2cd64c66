"""Envoy's clusters, and their endpoints as separate resources (docs/decisions/envoy-configuration.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.wrappers_pb2 import UInt32Value

from serving.data_dir import DataDir
from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy import retries
from serving.router.envoy.resource import duration, pack
from serving.router.plan.policy import EjectionPolicy
from serving.router.plan.service import Cluster, Endpoint, socket_name
from serving.settings import GatewaySettings

Number = TypeVar("Number", int, float)

_CONNECTIONS_TO_A_REPLICA = 10_000
"""Further requests wait for one. Linux has 28,232 ports for connections to one address, and looks at the odd
or the even ones first: once these 14,116 are in use, each connect(2) searches all of them in vain, for a
millisecond in which Envoy's worker does nothing else."""
_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def cluster(cluster: Cluster, settings: GatewaySettings) -> envoy.Cluster:
    """Return one Envoy cluster."""
    policy = cluster.policy
    common = envoy.CommonHttpProtocolOptions(idle_timeout=duration(settings.upstream_idle_seconds))
    if policy.answer_timeout:
        common.max_stream_duration.CopyFrom(duration(policy.answer_timeout))
    options = envoy.HttpProtocolOptions(
        common_http_protocol_options=common,
        explicit_http_config=_protocol(cluster),
        retry_policy=retries.of_cluster(cluster, settings),
    )
    detection = _outlier_detection(policy.ejection, settings)
    if detection is not None and not policy.ejection.consecutive_server_errors:
        # An answer of any status counts as a success: only a try without an answer is a failure.
        never = envoy.MatchPredicate(not_match=envoy.MatchPredicate(any_match=True))
        options.outlier_detection.error_matcher.CopyFrom(never)
    return envoy.Cluster(
        name=cluster.name,
        type=envoy.Cluster.EDS,
        eds_cluster_config=envoy.Cluster.EdsClusterConfig(
            eds_config=envoy.ConfigSource(
                ads=envoy.AggregatedConfigSource(), resource_api_version=envoy.ApiVersion.V3
            )
        ),
        connect_timeout=duration(settings.connect_timeout_seconds),
        per_connection_buffer_limit_bytes=UInt32Value(value=settings.connection_buffer_bytes),
        # Round robin queues behind a slow replica; least request of two random choices does not.
        lb_policy=envoy.Cluster.LEAST_REQUEST,
        # With half of the replicas gone, the dead ones must not get traffic again.
        common_lb_config=envoy.Cluster.CommonLbConfig(healthy_panic_threshold=envoy.Percent(value=0)),
        circuit_breakers=envoy.CircuitBreakers(
            thresholds=[_thresholds(cluster, settings)],
            per_host_thresholds=[
                envoy.CircuitBreakers.Thresholds(max_connections=UInt32Value(value=_CONNECTIONS_TO_A_REPLICA))
            ],
        ),
        outlier_detection=detection,
        typed_extension_protocol_options={_HTTP_OPTIONS: pack(options)},
    )


def _thresholds(cluster: Cluster, settings: GatewaySettings) -> envoy.CircuitBreakers.Thresholds:
    policy = cluster.policy
    unlimited = UInt32Value(value=settings.max_requests)
    # A retry takes a request that no replica accepted to the activator, which has its own bounds.
    min_retries = unlimited if cluster.on_demand else UInt32Value(value=settings.retry_min_concurrency)
    budget = _or_default(policy.retry_budget_percent, settings.retry_budget_percent)
    return envoy.CircuitBreakers.Thresholds(
        max_connections=unlimited,
        max_pending_requests=unlimited,
        max_requests=UInt32Value(value=_or_default(policy.max_requests, settings.max_requests)),
        retry_budget=envoy.CircuitBreakers.Thresholds.RetryBudget(
            budget_percent=envoy.Percent(value=budget), min_retry_concurrency=min_retries
        ),
    )


def _outlier_detection(policy: EjectionPolicy, settings: GatewaySettings) -> envoy.OutlierDetection | None:
    """Eject by consecutive failures alone: success rates of few requests are chance.

    A failure without an answer is the replica's; an answer of 500 may be the model's opinion of its input, so
    it counts only if the Route says so. Then both kinds share its threshold: Envoy counts an answer of 502,
    503 or 504 as a gateway failure too, and a failure without an answer as a server error.
    """
    failures = _or_default(policy.consecutive_failures, settings.eject_consecutive_failures)
    errors = policy.consecutive_server_errors or 0
    if not failures and not errors:
        return None
    # A threshold has no effect while its `enforcing_` percentage is 0.
    return envoy.OutlierDetection(
        consecutive_5xx=UInt32Value(value=errors or 1),
        base_ejection_time=duration(_or_default(policy.seconds, settings.eject_seconds)),
        max_ejection_percent=UInt32Value(
            value=round(_or_default(policy.max_percent, settings.eject_max_percent))
        ),
        enforcing_consecutive_5xx=UInt32Value(value=100 if errors else 0),
        enforcing_success_rate=UInt32Value(value=0),
        consecutive_gateway_failure=UInt32Value(value=failures or 1),
        enforcing_consecutive_gateway_failure=UInt32Value(value=0 if errors else 100),
    )


def _or_default(value: Number | None, default: Number) -> Number:
    return default if value is None else value


def _protocol(cluster: Cluster) -> envoy.HttpProtocolOptions.ExplicitHttpConfig:
    if cluster.h2c:
        http2 = envoy.Http2ProtocolOptions()
        return envoy.HttpProtocolOptions.ExplicitHttpConfig(http2_protocol_options=http2)
    http1 = envoy.Http1ProtocolOptions()
    return envoy.HttpProtocolOptions.ExplicitHttpConfig(http_protocol_options=http1)


@dataclass(frozen=True)
class SocketFolders:
    """The folders of Unix sockets to which Envoy connects."""

    activator: str
    """The activator's, each named by `socket_name`."""
    pods: str
    """The Pods', each named by `Endpoint.socket`."""

    @classmethod
    def of(cls, data_dir: DataDir) -> "SocketFolders":
        """Return the folders of an installation."""
        return cls(str(data_dir.activator), str(data_dir.pod_sockets))


def load_assignment(cluster: Cluster, folders: SocketFolders) -> envoy.ClusterLoadAssignment:
    """Return a cluster's endpoints: its replicas and, with lower priority, the activator if it is on demand.

    The activator gets requests while there is no replica, and requests that no replica accepted (see
    `retries`).
    """
    replicas = [_address(endpoint, folders.pods) for endpoint in cluster.endpoints]
    # Envoy's priorities have no gaps: the activator's 1 needs a 0, even without replicas.
    localities = [_locality(replicas)] if cluster.can_serve else []
    if cluster.on_demand:
        socket = envoy.Address(pipe=envoy.Pipe(path=f"{folders.activator}/{socket_name(cluster.name)}"))
        localities.append(_locality([socket], priority=1))
    return envoy.ClusterLoadAssignment(cluster_name=cluster.name, endpoints=localities)


def _address(endpoint: Endpoint, folder: str) -> envoy.Address:
    if endpoint.unix:
        return envoy.Address(pipe=envoy.Pipe(path=f"{folder}/{endpoint.socket}"))
    tcp = envoy.SocketAddress(address=endpoint.address, port_value=endpoint.port)
    return envoy.Address(socket_address=tcp)


def _locality(addresses: Sequence[envoy.Address], priority: int = 0) -> envoy.LocalityLbEndpoints:
    endpoints = [envoy.LbEndpoint(endpoint=envoy.Endpoint(address=address)) for address in addresses]
    return envoy.LocalityLbEndpoints(lb_endpoints=endpoints, priority=priority)
