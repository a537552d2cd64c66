"""Conditions: the aggregate `Ready` and narrower ones, of positive polarity, with transition times."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["True", "False", "Unknown"]


@dataclass(frozen=True)
class StatusReason:
    """The reason for a state in CamelCase, and a message for people."""

    reason: str
    message: str = ""


@dataclass(frozen=True)
class Condition:
    """A condition without its times and generation."""

    type: str
    status: Status
    reason: str
    message: str = ""


def find(conditions: Iterable[Mapping[str, Any]] | None, type_: str) -> Mapping[str, Any] | None:
    """Return the condition of this type, or None."""
    return next((c for c in conditions or () if c.get("type") == type_), None)


def is_true(obj: Mapping[str, Any], type_: str) -> bool:
    """Whether the object's condition is True, for any generation."""
    condition = find((obj.get("status") or {}).get("conditions"), type_)
    return condition is not None and condition.get("status") == "True"


def merge(
    old: Iterable[Mapping[str, Any]] | None, new: Iterable[Condition], *, generation: int, now: str
) -> list[dict[str, Any]]:
    """Return the conditions to write; `lastTransitionTime` changes only with the status.

    Args:
        old: the stored conditions.
        new: the new conditions; other types are dropped.
        generation: becomes `observedGeneration`.
        now: RFC 3339, the transition time of conditions whose status changed.
    """
    result = []
    for condition in new:
        before = find(old, condition.type)
        same = before is not None and before.get("status") == condition.status
        result.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": generation,
                "lastTransitionTime": before["lastTransitionTime"] if before is not None and same else now,
            }
        )
    return result


def aggregate(parts: Iterable[Condition], *, ready_reason: str = "Ready") -> Condition:
    """Return `Ready` of the parts: the first that is False, else the first that is Unknown, else True."""
    parts = list(parts)
    for status in ("False", "Unknown"):
        for part in parts:
            if part.status == status:
                return Condition("Ready", part.status, part.reason, part.message)
    return Condition("Ready", "True", ready_reason)
