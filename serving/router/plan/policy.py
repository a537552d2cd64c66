"""How a gateway repeats and bounds the requests of a Route, as the Route's spec asks for it.

`serving.resources.routing` has the fields of the spec.
"""

from dataclasses import dataclass

from serving.objects import Object
from serving.resources.formats import duration


@dataclass(frozen=True)
class RetryPolicy:
    """Which requests are tried again; None is the gateway's setting."""

    causes: frozenset[str] = frozenset({"Unsent"})
    """Values of `serving.resources.routing.RetryCause`."""
    attempts: int | None = None
    """Tries after the first one."""
    across_clusters: bool = True
    """Whether a retry goes to another cluster of the ring."""


@dataclass(frozen=True)
class RoutePolicy:
    """The policy of one service."""

    request_timeout: float = 0.0
    """Seconds until the last byte of an answer; 0 is no timeout."""
    try_timeout: float = 0.0
    """Seconds until the first byte of the answer to one try; 0 is no timeout."""
    retries: RetryPolicy = RetryPolicy()


@dataclass(frozen=True)
class EjectionPolicy:
    """When a replica that fails gets no requests for a while; None is the gateway's setting."""

    consecutive_failures: int | None = None
    """Consecutive tries without an answer after which a replica is ejected; 0 is never. Without effect where
    server errors are counted."""
    consecutive_server_errors: int | None = None
    """Consecutive answers of 500 to 599 or tries without an answer, counted together, after which a replica
    is ejected; 0 is never, and so is None."""
    seconds: float | None = None
    """Time of the first ejection."""
    max_percent: int | None = None
    """Most ejected replicas, in percent of the cluster's."""


@dataclass(frozen=True)
class ClusterPolicy:
    """The policy of one cluster."""

    answer_timeout: float = 0.0
    """Seconds until the last byte of the answer to one try; 0 is no timeout."""
    retries: RetryPolicy | None = None
    """Of the requests whose first try is at this cluster; None is the service's."""
    max_requests: int | None = None
    """Most concurrent requests to the cluster; None is the gateway's setting."""
    retry_budget_percent: int | None = None
    """Most concurrent retries, in percent of the cluster's requests in flight; None as in `max_requests`."""
    ejection: EjectionPolicy = EjectionPolicy()


ROUTE_DEFAULTS, CLUSTER_DEFAULTS = RoutePolicy(), ClusterPolicy()


def route_policy(spec: Object) -> RoutePolicy:
    """Return the policy of a Route's spec."""
    timeouts = spec.get("timeouts") or {}
    return RoutePolicy(
        request_timeout=_seconds(timeouts.get("request")),
        try_timeout=_seconds(timeouts.get("perTry")),
        retries=_retries(spec.get("retries") or {}, is_sticky=spec.get("sticky") is not None),
    )


def cluster_policy(spec: Object, backend: Object) -> ClusterPolicy:
    """Return the policy of one backend of a Route's spec."""
    timeouts, ejection = backend.get("timeouts") or {}, backend.get("ejection") or {}
    retries_of_service, own_retries = spec.get("retries") or {}, backend.get("retries")
    ejected_for = ejection.get("duration")
    return ClusterPolicy(
        answer_timeout=_seconds(timeouts.get("request")),
        retries=_retries(own_retries, is_sticky=spec.get("sticky") is not None) if own_retries else None,
        max_requests=(backend.get("limits") or {}).get("requests"),
        retry_budget_percent=(own_retries or retries_of_service).get("budgetPercent"),
        ejection=EjectionPolicy(
            consecutive_failures=ejection.get("consecutiveFailures"),
            consecutive_server_errors=ejection.get("consecutiveServerErrors"),
            seconds=None if ejected_for is None else duration.seconds(ejected_for),
            max_percent=ejection.get("maxPercent"),
        ),
    )


def effective_retries(spec: Object, backend: Object) -> RetryPolicy:
    """Return the retry policy of requests whose first try is at this backend of a Route's spec."""
    return cluster_policy(spec, backend).retries or route_policy(spec).retries


def _retries(retries: Object, *, is_sticky: bool) -> RetryPolicy:
    across = retries.get("acrossPredictors")
    return RetryPolicy(
        causes=frozenset(retries.get("on", RetryPolicy.causes)),
        attempts=retries.get("attempts"),
        across_clusters=not is_sticky if across is None else across,
    )


def _seconds(text: str | None) -> float:
    return duration.seconds(text) if text else 0.0
