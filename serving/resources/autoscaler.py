"""Autoscaler: the object that is scaled, how, and the last decision with its inputs."""

from typing import Annotated, Literal

from pydantic import Field

from serving.resources.base import ATOMIC, Base, Conditions, list_map
from serving.resources.scaling import ScalingSpec


class ScaleTargetRef(Base):
    """An object of this namespace with a scale subresource."""

    api_version: Annotated[str, Field(min_length=1, max_length=253)] = "apps/v1"
    kind: Annotated[str, Field(min_length=1, max_length=63)] = "Deployment"
    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]


class AutoscalerSpec(ScalingSpec):
    """How one target is scaled: ahead of the expected load, and to zero and back if minReplicas is 0."""

    scale_target_ref: ScaleTargetRef
    replicas: Annotated[
        int | None,
        Field(
            ge=0,
            le=1000,
            description="The count that another autoscaler writes through the scale subresource. Used only"
            " with `managed: false`.",
        ),
    ] = None


Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class WakePhase(Base):
    """One phase of a wake; the phases are consecutive."""

    name: str
    milliseconds: float


class Wake(Base):
    """The time between a request that found no replica and its release to the first replica."""

    pod: str
    accepted_at: Time
    phases: Annotated[
        list[WakePhase],
        Field(description="Phases that add up to the total.", json_schema_extra=ATOMIC),
    ] = []
    total: Annotated[float, Field(description="Milliseconds.")]


class DemandStatus(Base):
    """Requests that wait for the target at one activator, written by that activator alone."""

    reporter: Annotated[str, Field(description="`activator-<gateway>`, the activator of that gateway.")]
    in_flight: Annotated[
        int,
        Field(description="Requests that are waiting."),
    ] = 0
    last_request_time: Time | None = None
    last_wake: Wake | None = None


class Forecast(Base):
    """The highest rate of arriving requests expected within a horizon."""

    horizon_seconds: float
    lower: Annotated[float, Field(description="Requests per second, 10 % quantile.")]
    median: Annotated[float, Field(description="Requests per second.")]
    upper: Annotated[
        float,
        Field(
            description="Requests per second, at the quantile that follows from `risk`; replicas are started"
            " for this rate."
        ),
    ]


class DecisionInputs(Base):
    """Inputs of the last decision, as of its time; not updated while the decision stays the same."""

    time: Time
    rule: Annotated[str, Field(description="Rule that determined the count, in CamelCase.")] = ""
    metric: Annotated[str, Field(description="Metric that needs the most replicas.")] = ""
    needed: Annotated[
        int, Field(description="Replicas that the load needs, before stabilization and bounds.")
    ] = 0
    rate: Annotated[float, Field(description="Current rate of arriving requests, per second.")] = 0
    capacity: Annotated[float, Field(description="Requests per second of one replica; 0 if unknown.")] = 0
    backlog: Annotated[
        float, Field(description="Requests that wait in excess of those that replicas work on.")
    ] = 0
    startup_seconds: Annotated[float, Field(description="Expected duration of a start.")] = 0
    forecast: Forecast | None = None
    schedule: Annotated[
        str, Field(description="Names of the schedules that set the bounds; empty if the spec sets both.")
    ] = ""


class ReplicaChange(Base):
    """A decision that changed the number of replicas."""

    time: Time
    from_replicas: int
    to_replicas: int
    reason: Annotated[str, Field(description="Rule that determined the count, in CamelCase.")]
    message: str = ""


class MetricStatus(Base):
    """The current value of one metric, and the replicas that it needs."""

    name: Annotated[str, Field(description="Its type, or `type/name`.")]
    target: Annotated[
        float | None,
        Field(
            description="Target per replica from the spec, for Latency in seconds; absent if it is the"
            " capacity."
        ),
    ] = None
    value: Annotated[float | None, Field(description="Current value; absent if not measured.")] = None
    needed: Annotated[
        int | None,
        Field(description="Replicas that the metric needs; absent if it only keeps the current ones."),
    ] = None
    message: Annotated[str, Field(description="Reason for `needed`, or for its absence.")] = ""


class Signal(Base):
    """One source of measurements: a gateway, the replicas' metrics, a Prometheus."""

    source: Annotated[str, Field(description="`gateway-<name>`, `replicas`, `resources`, `prometheus`.")]
    healthy: bool
    message: Annotated[str, Field(description="The error, and since when it persists.")] = ""


class LearnedCapacity(Base):
    """The highest load of one replica at which it meets its latency target."""

    rate: Annotated[float, Field(description="Requests per second.")] = 0
    concurrency: Annotated[float, Field(description="Requests in flight at that rate.")] = 0
    source: Annotated[
        Literal["Profile", "Corrected", "Learned"],
        Field(
            description="A CapacityProfile, a profile corrected by observed throughput, or observed load and"
            " latency."
        ),
    ]


class LearnedScaling(Base):
    """Learned values of the target; unknown ones are absent."""

    capacity: LearnedCapacity | None = None
    startup_seconds: Annotated[
        float | None, Field(description="High quantile of past start durations, including failed starts.")
    ] = None
    keep_alive_seconds: Annotated[
        float | None, Field(description="Time without a request after which the last replicas are removed.")
    ] = None


class AutoscalerStatus(Base):
    """The last decision, and the reason for it."""

    desired_replicas: int = 0
    current_replicas: int = 0
    ready_replicas: int = 0
    selector: Annotated[
        str, Field(description="Labels of the target's Pods for other autoscalers; with `managed: false`.")
    ] = ""
    reason: Annotated[str, Field(description="Explanation of the current count, in one sentence.")] = ""
    last_scale_time: Time | None = None
    decision: DecisionInputs | None = None
    decisions: Annotated[
        list[ReplicaChange],
        Field(
            max_length=10,
            description="The last ten decisions that changed the count, newest first.",
            json_schema_extra=ATOMIC,
        ),
    ] = []
    metrics: Annotated[list[MetricStatus], Field(json_schema_extra=list_map("name"))] = []
    learned: LearnedScaling | None = None
    signals: Annotated[list[Signal], Field(json_schema_extra=list_map("source"))] = []
    observed_generation: int = 0
    demand: Annotated[list[DemandStatus], Field(json_schema_extra=list_map("reporter"))] = []
    conditions: Conditions = []
