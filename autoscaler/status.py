"""What an Autoscaler's status says, and when it is worth a write: values only. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscaler.decision import Decision, Demand
from autoscaler.policy.config import Metric
from autoscaler.signals.board import Health
from serving.resources import conditions
from serving.resources.conditions import Condition

Object = dict[str, Any]

KEPT = 10
"""Decisions that are kept: the schema allows no more."""
NEWS = 0.2
"""Share by which a figure must differ to be news: people look at it, and nothing is computed from it."""
_SMALL = 0.05
"""Of a figure: below this it counts as nothing."""
_FIGURES = ("needed", "rate", "capacity", "backlog", "startupSeconds")


@dataclass(frozen=True, slots=True)
class Said:
    """All that a status is made of."""

    decision: Decision
    current: int
    ready: int
    conditions: Sequence[Condition]
    signals: Sequence[Health] = ()
    learned: Object | None = None
    schedule: str = ""
    changes: Sequence[Object] = ()
    """The newest first."""
    metrics: Sequence[Object] = ()


def build(said: Said, old: Mapping[str, Any], generation: int, now: str) -> Object:
    """Return the status that this controller writes.

    Args:
        said: what there is to say.
        old: the status as it is.
        generation: of the Autoscaler.
        now: RFC 3339.
    """
    decision = said.decision
    status: Object = {
        "desiredReplicas": decision.replicas,
        "currentReplicas": said.current,
        "readyReplicas": said.ready,
        "reason": decision.message,
        "decision": _inputs(decision, said.schedule, now),
        "observedGeneration": generation,
        "conditions": conditions.merge(
            old.get("conditions"), said.conditions, generation=generation, now=now
        ),
    }
    if said.changes:
        status["decisions"] = list(said.changes[:KEPT])
        status["lastScaleTime"] = said.changes[0]["time"]
    if said.learned:
        status["learned"] = said.learned
    if said.metrics:
        status["metrics"] = list(said.metrics)
    if said.signals:
        status["signals"] = [
            {"source": found.source, "healthy": found.healthy, "message": found.message}
            for found in said.signals
        ]
    return status


def _inputs(decision: Decision, schedule: str, now: str) -> Object:
    found: Object = {"time": now, "rule": decision.reason, "needed": decision.needed}
    figures = {
        "rate": decision.rate,
        "capacity": decision.capacity,
        "backlog": decision.backlog,
        "startupSeconds": decision.startup,
    }
    found |= {name: rounded(value) for name, value in figures.items() if rounded(value)}
    if decision.metric:
        found["metric"] = decision.metric
    if schedule:
        found["schedule"] = schedule
    if decision.forecast is not None:
        band = decision.forecast
        found["forecast"] = {
            "horizonSeconds": rounded(band.horizon),
            "lower": rounded(band.lower),
            "median": rounded(band.median),
            "upper": rounded(band.upper),
        }
    return found


def metrics(asked: Sequence[Metric], demands: Iterable[Demand]) -> list[Object]:
    """Return `status.metrics`: of each metric what it is now, and the replicas that it asks for.

    Args:
        asked: of the spec.
        demands: of the decision.
    """
    targets = {metric.name: metric.target for metric in asked}
    found = []
    for demand in demands:
        entry: Object = {"name": demand.metric, "message": demand.message}
        target = targets.get(demand.metric)
        if target is not None:
            entry["target"] = rounded(target)
        if demand.value is not None:
            entry["value"] = rounded(demand.value)
        if demand.needed is not None:
            entry["needed"] = demand.needed
        found.append(entry)
    return found


def rounded(value: float) -> float:
    """Return a figure with three digits; 0 for what is none."""
    if not math.isfinite(value) or abs(value) < 1e-9:
        return 0.0
    return round(value, 2 - math.floor(math.log10(abs(value))))


def is_urgent(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a status must be written at once: a count, or whether something works, is another one."""
    plain = ("desiredReplicas", "currentReplicas", "readyReplicas", "observedGeneration", "lastScaleTime")
    if any(old.get(name) != new.get(name) for name in plain):
        return True
    if _sick(old) != _sick(new):
        return True
    return _states(old) != _states(new)


def is_news(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a status that is not urgent is worth a write in a while: another rule, or figures that differ."""
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
        ("value" in one) != ("value" in other)
        or one.get("needed", 0) != other.get("needed", 0)
        or _differ(one.get("value", 0), other.get("value", 0))
        for one, other in zip(before, after, strict=True)
    )


def _differ(before: float, after: float) -> bool:
    larger = max(abs(before), abs(after))
    return larger > _SMALL and abs(before - after) > NEWS * larger


def _sick(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what cannot be believed; who is well is not worth a write of all Autoscalers."""
    return [(s["source"], s.get("message", "")) for s in status.get("signals") or [] if not s["healthy"]]


def _states(status: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the conditions as far as a change of them is urgent: the reason of what is well may wait."""
    return [
        (c["type"], c["status"], "" if c["status"] == "True" else c["reason"])
        for c in status.get("conditions") or []
    ]


def change(before: int, decision: Decision, now: str) -> Object:
    """Return an entry of `status.decisions`."""
    return {
        "time": now, "fromReplicas": before, "toReplicas": decision.replicas, "reason": decision.reason,
        "message": decision.message,
    }  # fmt: skip
