"""How a gateway repeats and bounds the requests of a Route: the values that the Route sets, and what is left
to the gateway's settings.
"""

from dataclasses import dataclass

from serving.objects import Object
from serving.resources.formats import duration


@dataclass(frozen=True)
class RetryPolicy:
    """Which requests are tried again; None is the gateway's setting."""

    causes: frozenset[str] = frozenset({"Unsent"})
    """Of `serving.resources.routing.RetryCause`."""
    attempts: int | None = None
    budget_percent: int | None = None
    across_clusters: bool = True
    """Whether a retry goes to another cluster of the ring."""


@dataclass(frozen=True)
class RoutePolicy:
    """Timeouts in seconds, 0 for none, and retries of one service."""

    request_timeout: float = 0.0
    try_timeout: float = 0.0
    retries: RetryPolicy = RetryPolicy()


@dataclass(frozen=True)
class EjectionPolicy:
    """When a replica that fails gets no requests for a while; None is the gateway's setting."""

    consecutive_failures: int | None = None
    consecutive_server_errors: int | None = None
    seconds: float | None = None
    max_percent: int | None = None


@dataclass(frozen=True)
class ClusterPolicy:
    """The bounds of one cluster; `try_timeout` in seconds is of a whole answer, 0 for none."""

    try_timeout: float = 0.0
    max_requests: int | None = None
    retry_budget_percent: int | None = None
    ejection: EjectionPolicy = EjectionPolicy()


def route_policy(spec: Object) -> RoutePolicy:
    """Return the policy of a Route's spec."""
    timeouts, retries = spec.get("timeouts") or {}, spec.get("retries") or {}
    across = retries.get("acrossPredictors")
    return RoutePolicy(
        request_timeout=_seconds(timeouts.get("request")),
        try_timeout=_seconds(timeouts.get("perTry")),
        retries=RetryPolicy(
            causes=frozenset(retries.get("on", RetryPolicy.causes)),
            attempts=retries.get("attempts"),
            budget_percent=retries.get("budgetPercent"),
            across_clusters=spec.get("sticky") is None if across is None else across,
        ),
    )


def cluster_policy(backend: Object, retries: RetryPolicy) -> ClusterPolicy:
    """Return the policy of a Route's backend, of which the retry budget is the Route's."""
    ejection = backend.get("ejection") or {}
    ejected_for = ejection.get("duration")
    return ClusterPolicy(
        try_timeout=_seconds((backend.get("timeouts") or {}).get("request")),
        max_requests=(backend.get("limits") or {}).get("requests"),
        retry_budget_percent=retries.budget_percent,
        ejection=EjectionPolicy(
            consecutive_failures=ejection.get("consecutiveFailures"),
            consecutive_server_errors=ejection.get("consecutiveServerErrors"),
            seconds=None if ejected_for is None else duration.seconds(ejected_for),
            max_percent=ejection.get("maxPercent"),
        ),
    )


def _seconds(text: str | None) -> float:
    return duration.seconds(text) if text else 0.0
