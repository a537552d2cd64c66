"""Envoy's retry policies: of a service's route, and of a cluster whose predictor has one of its own."""

from google.protobuf.wrappers_pb2 import UInt32Value

from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy.resource import duration, pack
from serving.router.plan.policy import RetryPolicy
from serving.router.plan.service import Cluster, GatewayService
from serving.settings import GatewaySettings

_HOST_SELECTION_ATTEMPTS = 5
"""Most draws of a replica for one retry, to find one that the request has not tried."""
_CONDITIONS = (
    ("Unsent", "connect-failure,refused-stream,reset-before-request"),
    ("Lost", "reset"),
    ("Unavailable", "retriable-status-codes"),
)
"""Each cause of a retry (`serving.resources.routing.RetryCause`) with Envoy's conditions (`retry_on`)."""
_UNAVAILABLE = (502, 503, 504)
"""The status codes of the cause `Unavailable`."""


def of_service(service: GatewayService, settings: GatewaySettings) -> envoy.RetryPolicy:
    """Return the retry policy of a service's route, which includes the timeout of one try.

    While a backend with weight has no replica, a try has no timeout: the activator holds the request until a
    replica has started.
    """
    policy = _policy(
        service.policy.retries,
        settings,
        on_demand=any(cluster.on_demand for cluster in service.clusters),
        may_change_cluster=len(service.ring) > 1,
    )
    weighted = {segment.cluster for segment in service.ring if segment.size}
    at_zero = any(cluster.name in weighted and not cluster.endpoints for cluster in service.clusters)
    if service.policy.try_timeout and not at_zero:
        policy.per_try_timeout.CopyFrom(duration(service.policy.try_timeout))
    return policy


def of_cluster(cluster: Cluster, settings: GatewaySettings) -> envoy.RetryPolicy | None:
    """Return the retry policy of a cluster, which replaces its routes'; None if it has none of its own.

    The timeout of a try is always the route's.
    """
    if cluster.policy.retries is None:
        return None
    return _policy(cluster.policy.retries, settings, on_demand=cluster.on_demand, may_change_cluster=True)


def _policy(
    retries: RetryPolicy,
    settings: GatewaySettings,
    *,
    on_demand: bool,
    may_change_cluster: bool,
) -> envoy.RetryPolicy:
    """Return a policy that retries on another replica.

    Args:
        retries: the causes and the number of retries; by default only a request that no replica has begun to
            process is retried.
        settings: the gateway's.
        on_demand: whether the last retry goes to the activator. It holds the request for the next replica if
            Envoy does not know yet that the last one is gone.
        may_change_cluster: whether there may be another cluster. Without `on_demand` a retry may go there:
            Envoy chooses among the clusters with weight that the request has not tried.
    """
    attempts = settings.retries if retries.attempts is None else retries.attempts
    conditions = [condition for cause, condition in _CONDITIONS if cause in retries.causes]
    policy = envoy.RetryPolicy(
        retry_on=",".join(conditions),
        num_retries=UInt32Value(value=attempts),
        retry_host_predicate=[
            envoy.RetryPolicy.RetryHostPredicate(
                name="envoy.retry_host_predicates.previous_hosts",
                typed_config=pack(envoy.PreviousHostsPredicate()),
            )
        ],
        host_selection_retry_max_attempts=_HOST_SELECTION_ATTEMPTS,
        retriable_status_codes=_UNAVAILABLE if "Unavailable" in retries.causes else (),
    )
    if on_demand and attempts:
        # The first `attempts` tries go to priority 0, the replicas; the last to priority 1, the activator.
        policy.retry_priority.CopyFrom(
            envoy.RetryPolicy.RetryPriority(
                name="envoy.retry_priorities.previous_priorities",
                typed_config=pack(envoy.PreviousPrioritiesConfig(update_frequency=attempts)),
            )
        )
    elif not on_demand and retries.across_clusters and may_change_cluster:
        policy.refresh_cluster_on_retry = True
    return policy
