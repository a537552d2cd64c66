"""The output of a scaling policy: a replica count, and the inputs of the decision. Values only. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Band:
    """A forecast of the rate of arriving work at a horizon, in work per second."""

    horizon: float
    """Seconds from the end of the last reading."""
    lower: float
    """The 10 % quantile."""
    median: float
    upper: float
    """The quantile that the risk determines; replicas are sized on it."""


@dataclass(frozen=True, slots=True)
class MetricNeed:
    """The replicas that one metric asks for."""

    metric: str
    needed: int | None
    """Replicas; None: unknown, or more replicas do not help. Then the metric must not remove replicas."""
    message: str
    value: float | None = None
    """The current value of the metric; None: not measured."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A replica count and its reason."""

    replicas: int
    reason: str
    """The binding rule, in CamelCase: a condition's reason."""
    message: str
    """One sentence for people, with figures of the moment."""
    needed: int = 0
    """Replicas that the load and the metrics ask for, before stabilization and bounds."""
    metric: str = ""
    """The metric that needs the most replicas."""
    rate: float = 0.0
    """Work per second now."""
    capacity: float = 0.0
    """Work per second of one replica; 0: unknown."""
    backlog: float = 0.0
    """Requests that wait beyond those in service."""
    startup: float = 0.0
    """Seconds that a start is expected to take, at a high quantile."""
    forecast: Band | None = None
    metric_needs: tuple[MetricNeed, ...] = ()
    """The need of each metric, with or without a target."""
