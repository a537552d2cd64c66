"""An Autoscaler's spec as the policy's configuration: numbers in seconds, replicas and percent. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from autoscaler.observation import Capacity
from autoscaler.policy.limits.cron import Cron
from autoscaler.policy.limits.schedules import Schedule
from autoscaler.settings import DEFAULTS, AutoscalerSettings
from serving import errors
from serving.resources.formats import duration

MetricType = Literal[
    "QPS", "Concurrency", "Latency", "TokenQueueDepth", "TokensPerSecond", "Utilization", "PromQL"
]
Prediction = Literal["Enabled", "Observe", "Disabled"]

PERCENTILE = 99.0
"""Percent of the requests whose latency is limited, for metrics without `percentile`; the tuner's constraints
have the same default."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the spec."""

    name: str
    """The type, or `type/name` for a metric with a name; unique within a target."""
    type: MetricType
    target_value: float | None
    """For each replica: requests/s, requests in flight, tokens, tokens/s, or the query's value. Of Latency:
    seconds; of Utilization: percent. None: the measured or learned capacity."""
    percentile: float = PERCENTILE
    """The percentile of a metric of the type Latency."""
    resource: str = ""
    """The resource of a metric of the type Utilization: `cpu`, `memory` or `gpu`."""
    query: str = ""
    """The query of a metric of the type PromQL."""
    server: str = ""
    """Base URL of the server of a metric of the type PromQL; empty: the configured one."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the count may change in one direction. Rates of None are no limits."""

    replicas_per_minute: int | None = None
    percent_per_minute: int | None = None
    """Percent of the replicas; with both limits the larger change is allowed."""
    stabilization: float | None = None
    """Seconds throughout which a change must have been needed; of different changes the smallest counts.
    None: the policy decides."""


@dataclass(frozen=True, slots=True)
class Zero:
    """How a target scales to zero and back."""

    idle: float | None = None
    """Seconds without a request; None: learned from the times between requests and the cost of a start."""
    prewarm: bool = True
    """Start a replica when a request is likely, before it arrives."""


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """The configuration of one target's policy."""

    min_replicas: int = 1
    max_replicas: int = 1
    schedules: tuple[Schedule, ...] = ()
    metrics: tuple[Metric, ...] = ()
    """Empty: requests per second, by the measured or learned capacity."""
    up: Pace = Pace()
    down: Pace = Pace()
    zero: Zero = Zero()
    prediction: Prediction = "Enabled"
    zone: ZoneInfo | None = None
    """Time zone of the daily and weekly shapes; None: UTC."""
    risk: float = DEFAULTS.risk
    """Accepted percent of requests that wait too long, above 0 and at most 50."""
    capacity: Capacity | None = None
    """Capacity of one replica by a CapacityProfile; not part of the spec."""


def from_spec(spec: Mapping[str, Any], settings: AutoscalerSettings = DEFAULTS) -> PolicyConfig:
    """Return the configuration of an Autoscaler's spec, which its schema has validated.

    Raises:
        errors.Permanent: `InvalidSpec`; the spec breaks a rule that a schema cannot express. The message
            names field, value and rule.
    """
    behavior = spec.get("behavior") or {}
    zero = behavior.get("scaleToZero") or {}
    idle = zero.get("idleSeconds")
    prediction = spec.get("prediction") or {}
    zone = prediction.get("timeZone")
    return PolicyConfig(
        min_replicas=spec.get("minReplicas", 1),
        max_replicas=spec.get("maxReplicas", 1),
        schedules=tuple(_schedule(schedule, spec) for schedule in spec.get("schedules") or ()),
        metrics=_metrics(spec.get("metrics") or ()),
        up=_pace(behavior.get("scaleUp") or {}),
        down=_pace(behavior.get("scaleDown") or {}),
        zero=Zero(None if idle is None else float(idle), zero.get("prewarm", True)),
        prediction=prediction.get("mode", "Enabled"),
        zone=None if zone is None else _zone("spec.prediction.timeZone", zone),
        risk=float(spec.get("risk", settings.risk)),
    )


def _pace(behavior: Mapping[str, Any]) -> Pace:
    seconds = behavior.get("stabilizationSeconds")
    return Pace(
        behavior.get("maxReplicasPerMinute"),
        behavior.get("maxPercentPerMinute"),
        None if seconds is None else float(seconds),
    )


def _metrics(metrics: Sequence[Mapping[str, Any]]) -> tuple[Metric, ...]:
    return tuple(
        Metric(
            name=f"{metric['type']}/{metric['name']}" if metric.get("name") else metric["type"],
            type=metric["type"],
            target_value=_target_value(metric),
            percentile=float(metric.get("percentile", PERCENTILE)),
            resource=metric.get("resource", ""),
            query=metric.get("query", ""),
            server=metric.get("serverAddress", ""),
        )
        for metric in metrics
    )


def _target_value(metric: Mapping[str, Any]) -> float | None:
    value = metric.get("target")
    if value is None:
        return None
    return duration.seconds(value) if metric["type"] == "Latency" else float(value)


def _schedule(schedule: Mapping[str, Any], spec: Mapping[str, Any]) -> Schedule:
    field = f"spec.schedules[{schedule['name']}]"
    minimum, maximum = schedule.get("minReplicas"), schedule.get("maxReplicas")
    least = spec.get("minReplicas", 1) if minimum is None else minimum
    most = spec.get("maxReplicas", 1) if maximum is None else maximum
    if least > most:
        raise _invalid(field, f"minReplicas {least} is greater than maxReplicas {most}")
    length = schedule.get("duration")
    end = schedule.get("end")
    return Schedule(
        name=schedule["name"],
        start=_cron(f"{field}.start", schedule["start"]),
        zone=_zone(f"{field}.timeZone", schedule.get("timeZone", "UTC")),
        end=None if end is None else _cron(f"{field}.end", end),
        duration=None if length is None else duration.seconds(length),
        minimum=minimum,
        maximum=maximum,
    )


def _cron(field: str, text: str) -> Cron:
    try:
        return Cron.parse(text)
    except ValueError as error:
        raise _invalid(field, f"{text!r}: {error}") from error


def _zone(field: str, name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise _invalid(
            field, f"{name!r} is no time zone of the IANA database, such as Europe/Berlin"
        ) from error


def _invalid(field: str, message: str) -> errors.Permanent:
    return errors.Permanent("InvalidSpec", f"{field}: {message}")
