"""The need of a target: the replicas that its load and its metrics ask for. Values only. Pure."""

from dataclasses import dataclass

from autoscaler.decision_values import Band, MetricNeed


@dataclass(frozen=True, slots=True)
class Need:
    """Replicas before stabilization and bounds, with their reason."""

    replicas: int
    without_backlog: int
    """Replicas without those for a backlog, which no stabilization window keeps."""
    reason: str
    message: str
    band: Band
    """The forecast that the need was sized on."""
    backlog: float
    """Requests that wait beyond those in service."""
    metric: str = "QPS"
    """The metric that needs the most replicas."""
    metric_needs: tuple[MetricNeed, ...] = ()
