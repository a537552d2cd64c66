"""Builds an Autoscaler's status, and decides whether its changes are worth a write. Pure."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from autoscaler.decision_values import Decision, MetricNeed
from autoscaler.policy.config import Metric
from autoscaler.signals.board import Health
from serving.objects import Object
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.conditions import Condition

KEPT = 10
"""Most entries of `status.decisions`: the limit of the schema."""
NEWS = 0.2
"""Share by which a figure must differ to be news: people read it, and nothing is computed from it."""
_SMALL = 0.05
"""Figures up to this count as 0, as their relative changes are large and mean nothing."""
_FIGURES = ("needed", "rate", "capacity", "backlog", "startupSeconds")
"""Fields of `status.decision` whose change is news."""


@dataclass(frozen=True, slots=True)
class StatusContent:
    """The values from which a status is built."""

    decision: Decision
    current: int
    """Replicas of the target, by the target's status."""
    ready: int
    """Ready replicas of the target, by the target's status."""
    conditions: Sequence[Condition]
    signals: Sequence[Health] = ()
    learned: Object | None = None
    """`status.learned`."""
    schedule: str = ""
    """Names of the active schedules."""
    changes: Sequence[Object] = ()
    """The entries of `status.decisions`, the newest first."""
    metrics: Sequence[Object] = ()
    """`status.metrics`."""
    selector: str = ""
    """Labels of the target's Pods, for other autoscalers."""


def build(content: StatusContent, old: Mapping[str, Any], generation: int, now: str) -> Object:
    """Return the status that this controller writes.

    Args:
        content: the parts of the new status.
        old: the current status.
        generation: `metadata.generation` of the Autoscaler.
        now: the time of the status, in RFC 3339.
    """
    decision = content.decision
    status: Object = {
        "desiredReplicas": decision.replicas,
        "currentReplicas": content.current,
        "readyReplicas": content.ready,
        "reason": decision.message,
        "decision": _inputs(decision, content.schedule, now),
        "observedGeneration": generation,
        "conditions": conditions.merge(
            old.get("conditions"), content.conditions, generation=generation, now=now
        ),
    }
    if content.changes:
        status["decisions"] = list(content.changes[:KEPT])
        status["lastScaleTime"] = content.changes[0]["time"]
    if content.learned:
        status["learned"] = content.learned
    if content.selector:
        status["selector"] = content.selector
    if content.metrics:
        status["metrics"] = list(content.metrics)
    if content.signals:
        status["signals"] = [
            {"source": health.source, "healthy": health.healthy, "message": health.message}
            for health in content.signals
        ]
    return status


def _inputs(decision: Decision, schedule: str, now: str) -> Object:
    """Return `status.decision`: the inputs of the decision, without `figures` that are unknown or 0."""
    inputs: Object = {"time": now, "rule": decision.reason, "needed": decision.needed}
    figures = {
        "rate": decision.rate,
        "capacity": decision.capacity,
        "backlog": decision.backlog,
        "startupSeconds": decision.startup,
    }
    inputs |= {name: rounded(value) for name, value in figures.items() if rounded(value)}
    if decision.metric:
        inputs["metric"] = decision.metric
    if schedule:
        inputs["schedule"] = schedule
    if decision.forecast is not None:
        band = decision.forecast
        inputs["forecast"] = {
            "horizonSeconds": rounded(band.horizon),
            "lower": rounded(band.lower),
            "median": rounded(band.median),
            "upper": rounded(band.upper),
        }
    return inputs


def metrics(spec_metrics: Sequence[Metric], metric_needs: Iterable[MetricNeed]) -> list[Object]:
    """Return `status.metrics`: the current value of each metric, and the replicas that it asks for.

    Args:
        spec_metrics: the metrics of the spec.
        metric_needs: the needs of the decision.
    """
    targets = {metric.name: metric.target_value for metric in spec_metrics}
    entries = []
    for metric_need in metric_needs:
        entry: Object = {"name": metric_need.metric, "message": metric_need.message}
        target = targets.get(metric_need.metric)
        if target is not None:
            entry["target"] = rounded(target)
        if metric_need.value is not None:
            entry["value"] = rounded(metric_need.value)
        if metric_need.needed is not None:
            entry["needed"] = metric_need.needed
        entries.append(entry)
    return entries


def rounded(value: float) -> float:
    """Return a figure with three significant digits; 0 for NaN, infinity and figures below 1e-9."""
    if not math.isfinite(value) or abs(value) < 1e-9:
        return 0.0
    return round(value, 2 - math.floor(math.log10(abs(value))))


def fingerprint(status: Mapping[str, Any]) -> bytes:
    """Return the digest of a status without `demand`, which activators write: this controller writes the
    rest.
    """
    own = {name: value for name, value in status.items() if name != "demand"}
    return hashlib.sha256(orjson.dumps(own, option=orjson.OPT_SORT_KEYS)).digest()


def is_urgent(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a status needs a write at once: a count, the generation, the selector, a condition or the
    health of a signal has changed.
    """
    urgent_fields = (
        "desiredReplicas",
        "currentReplicas",
        "readyReplicas",
        "observedGeneration",
        "lastScaleTime",
        "selector",
    )
    # A field without a value is absent, or has the schema's default, which is as empty.
    if any((old.get(name) or None) != (new.get(name) or None) for name in urgent_fields):
        return True
    if _unhealthy(old) != _unhealthy(new):
        return True
    return _states(old) != _states(new)


def is_news(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a status that is not urgent is worth a later write: another rule, or figures that differ."""
    before, after = old.get("decision") or {}, new.get("decision") or {}
    if any(before.get(name, "") != after.get(name, "") for name in ("rule", "metric", "schedule")):
        return True
    if any(_differ(before.get(name, 0), after.get(name, 0)) for name in _FIGURES):
        return True
    first, second = before.get("forecast") or {}, after.get("forecast") or {}
    if _differ(first.get("upper", 0), second.get("upper", 0)):
        return True
    return _metrics_differ(old.get("metrics") or [], new.get("metrics") or [])


def _metrics_differ(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> bool:
    if [metric["name"] for metric in before] != [metric["name"] for metric in after]:
        return True
    return any(
        ("value" in old) != ("value" in new)
        or old.get("needed", 0) != new.get("needed", 0)
        or _differ(old.get("value", 0), new.get("value", 0))
        for old, new in zip(before, after, strict=True)
    )


def _differ(before: float, after: float) -> bool:
    larger = max(abs(before), abs(after))
    return larger > _SMALL and abs(before - after) > NEWS * larger


def _unhealthy(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the unhealthy signals; a healthy signal is not worth a write of every Autoscaler's status."""
    return [(s["source"], s.get("message", "")) for s in status.get("signals") or [] if not s["healthy"]]


def _states(status: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the conditions whose change is urgent; a new reason of a condition that is True may wait."""
    return [
        (c["type"], c["status"], "" if c["status"] == "True" else c["reason"])
        for c in status.get("conditions") or []
    ]


def change(before: int, decision: Decision, now: str) -> Object:
    """Return an entry of `status.decisions` for a count that changed from `before`; `now` is in RFC 3339."""
    return {
        "time": now,
        "fromReplicas": before,
        "toReplicas": decision.replicas,
        "reason": decision.reason,
        "message": decision.message,
    }
