"""An Autoscaler's spec as the policy takes it: plain numbers in seconds, replicas and percent. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from autoscaler.observation import Capacity
from autoscaler.policy.cron import Cron
from autoscaler.policy.schedules import Schedule
from serving import errors
from serving.resources import duration

MetricType = Literal[
    "QPS", "Concurrency", "Latency", "TokenQueueDepth", "TokensPerSecond", "Utilization", "PromQL"
]
Prediction = Literal["Enabled", "Observe", "Disabled"]

RISK = 0.5
"""Percent of requests that may come while there is too little capacity: half of what is asked of the hardest
traces."""
PERCENTILE = 99.0
"""Percent of the requests whose latency is limited, where the metric does not say; the tuner's constraints
have the same."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What one metric asks for."""

    name: str
    """Its type, or `type/name` where it has a name: no two metrics of a target have the same."""
    type: MetricType
    target: float | None
    """For each replica: requests/s, requests in flight, tokens, tokens/s, or the query's value. Of Latency:
    seconds; of Utilization: percent. None: the capacity that is known or learned."""
    percentile: float = PERCENTILE
    """Of Latency."""
    resource: str = ""
    """Of Utilization: `cpu`, `memory` or `gpu`."""
    query: str = ""
    """Of PromQL."""
    server: str = ""
    """Of PromQL: base URL; empty: the configured one."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the count may change in one direction. None: as the policy finds right."""

    replicas_per_minute: int | None = None
    percent_per_minute: int | None = None
    """Of the replicas; where both are given, what allows more replicas holds."""
    stabilization: float | None = None
    """Seconds for which a smaller change must have been wanted too."""


@dataclass(frozen=True, slots=True)
class Zero:
    """How the last replicas go, and the first ones come."""

    idle: float | None = None
    """Seconds without a request; None: learned from the times between requests and what a start costs."""
    prewarm: bool = True
    """Start a replica when a request is likely, before it is there."""


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """What is asked of one target."""

    min_replicas: int = 1
    max_replicas: int = 1
    schedules: tuple[Schedule, ...] = ()
    metrics: tuple[Metric, ...] = ()
    """Empty: requests per second, by the capacity that is known or learned."""
    up: Pace = Pace()
    down: Pace = Pace()
    zero: Zero = Zero()
    prediction: Prediction = "Enabled"
    zone: ZoneInfo | None = None
    """In which days and weeks have their shape; None: UTC."""
    risk: float = RISK
    """Percent, above 0 and at most 50."""
    capacity: Capacity | None = None
    """Of one replica, as measured by a CapacityProfile; it is no part of the spec."""


def from_spec(spec: Mapping[str, Any]) -> PolicyConfig:
    """Return what the spec of an Autoscaler asks for; what its schema says is taken as checked.

    Raises:
        errors.Permanent: `InvalidSpec`; what a schema cannot say is wrong. The message names field, value and rule.
    """
    behavior = spec.get("behavior") or {}
    zero = behavior.get("scaleToZero") or {}
    idle = zero.get("idleSeconds")
    prediction = spec.get("prediction") or {}
    zone = prediction.get("timeZone")
    return PolicyConfig(
        min_replicas=spec.get("minReplicas", 1),
        max_replicas=spec.get("maxReplicas", 1),
        schedules=tuple(_schedule(found, spec) for found in spec.get("schedules") or ()),
        metrics=_metrics(spec.get("metrics") or ()),
        up=_pace(behavior.get("scaleUp") or {}),
        down=_pace(behavior.get("scaleDown") or {}),
        zero=Zero(None if idle is None else float(idle), zero.get("prewarm", True)),
        prediction=prediction.get("mode", "Enabled"),
        zone=None if zone is None else _zone("spec.prediction.timeZone", zone),
        risk=float(spec.get("risk", RISK)),
    )


def _pace(found: Mapping[str, Any]) -> Pace:
    seconds = found.get("stabilizationSeconds")
    return Pace(
        found.get("maxReplicasPerMinute"),
        found.get("maxPercentPerMinute"),
        None if seconds is None else float(seconds),
    )


def _metrics(found: Sequence[Mapping[str, Any]]) -> tuple[Metric, ...]:
    return tuple(
        Metric(
            name=f"{metric['type']}/{metric['name']}" if metric.get("name") else metric["type"],
            type=metric["type"],
            target=_target(metric),
            percentile=float(metric.get("percentile", PERCENTILE)),
            resource=metric.get("resource", ""),
            query=metric.get("query", ""),
            server=metric.get("serverAddress", ""),
        )
        for metric in found
    )


def _target(metric: Mapping[str, Any]) -> float | None:
    target = metric.get("target")
    if target is None:
        return None
    return duration.seconds(target) if metric["type"] == "Latency" else float(target)


def _schedule(found: Mapping[str, Any], spec: Mapping[str, Any]) -> Schedule:
    field = f"spec.schedules[{found['name']}]"
    minimum, maximum = found.get("minReplicas"), found.get("maxReplicas")
    least = spec.get("minReplicas", 1) if minimum is None else minimum
    most = spec.get("maxReplicas", 1) if maximum is None else maximum
    if least > most:
        raise _invalid(field, f"minReplicas {least} is greater than maxReplicas {most}")
    length = found.get("duration")
    end = found.get("end")
    return Schedule(
        name=found["name"],
        start=_cron(f"{field}.start", found["start"]),
        zone=_zone(f"{field}.timeZone", found.get("timeZone", "UTC")),
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
