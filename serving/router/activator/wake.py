"""The phases of a wake: from the arrival of the first request without a replica to its release."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from serving.resources import conditions, names

Phase = tuple[str, float]
"""A name, and seconds."""


def phases(accepted: float, released: float, pod: Mapping[str, Any] | None) -> list[Phase]:
    """Return the phases in order; they add up to `released - accepted`.

    Args:
        accepted: when the first request was held, in Unix seconds.
        released: when it was sent to the replica.
        pod: the replica's; if the node reports no start, everything is `other`.
    """
    start = _start_report(pod)
    if start is not None and start["ready"] <= accepted:
        return [("decide", released - accepted)]  # a standby replica, which only had to be chosen
    if start is None or not accepted <= start["seen"] <= start["ready"] <= released:
        return [("other", released - accepted)]
    reported = [(name, start.get(name, 0.0) / 1000) for name in names.START_PHASES]
    unreported = start["ready"] - start["seen"] - sum(seconds for _, seconds in reported)
    return [
        ("decide", start["seen"] - accepted),
        *reported,
        ("other", unreported),
        ("routable", released - start["ready"]),
    ]


def report(pod: str, accepted_at: str, phases: Sequence[Phase]) -> dict[str, Any]:
    """Return the phases in the form of `Autoscaler.status.demand[].lastWake`."""
    return {
        "pod": pod,
        "acceptedAt": accepted_at,
        "phases": [{"name": name, "milliseconds": round(1000 * seconds, 3)} for name, seconds in phases],
        "total": round(1000 * sum(seconds for _, seconds in phases), 3),
    }


def _start_report(pod: Mapping[str, Any] | None) -> dict[str, float] | None:
    """Return the node's report of a start: phases in milliseconds, `seen` and `ready` in Unix seconds."""
    condition = conditions.find(((pod or {}).get("status") or {}).get("conditions"), names.STARTED_CONDITION)
    try:
        message = orjson.loads((condition or {}).get("message") or "")
    except orjson.JSONDecodeError:
        return None
    if not isinstance(message, dict):
        return None
    numbers = {name: float(value) for name, value in message.items() if isinstance(value, int | float)}
    return numbers if {"seen", "ready"} <= numbers.keys() else None
