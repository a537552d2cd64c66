"""What a scaling policy returns: a replica count, and what led to it. Values only. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Band:
    """A forecast of the highest rate of arriving work within a horizon."""

    horizon: float
    """Seconds from the decision."""
    lower: float
    """Work per second: the 10 % quantile."""
    median: float
    upper: float
    """The quantile that the risk asks for; replicas are sized on it."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one metric asks for."""

    metric: str
    needed: int | None
    """Replicas; None: nothing is known by it, and so it must not take replicas away."""
    message: str
    value: float | None = None
    """Of the metric now; None: it is not measured."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A replica count and its reason."""

    replicas: int
    reason: str
    """The rule that bound, in CamelCase: a condition's reason."""
    message: str
    """One sentence for people; it stays the same while nothing changes."""
    needed: int = 0
    """Replicas that the load asks for, before hysteresis and bounds."""
    metric: str = ""
    """The metric that asked for the most replicas."""
    rate: float = 0.0
    """Work per second now."""
    capacity: float = 0.0
    """Work per second of one replica; 0: not known."""
    backlog: float = 0.0
    """Requests that wait beyond what the replicas work on."""
    startup: float = 0.0
    """Seconds that a start is expected to take, at a high quantile."""
    forecast: Band | None = None
    demands: tuple[Demand, ...] = ()
    """What the metrics with a target ask for, and those that have none of their own."""
