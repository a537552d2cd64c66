"""The phases of a wake: from the arrival of the first request without a replica to its release."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from serving.resources import names
from serving.resources.kubernetes import conditions


class Phase(NamedTuple):
    """One phase of a wake: `decide`, one of `names.START_PHASES`, `other` or `routable`."""

    name: str
    seconds: float


def phases(accepted: float, released: float, pod: Mapping[str, Any] | None) -> list[Phase]:
    """Return the phases in order; they add up to `released - accepted`.

    Args:
        accepted: arrival of the first request, in Unix seconds.
        released: when that request went to the replica, in Unix seconds.
        pod: the replica's; if the node reports no start, or times out of order, everything is `other`.
    """
    start = _start_report(pod)
    if start is not None and start["ready"] <= accepted:
        # The replica was ready before the request, as a standby replica is: it only had to get traffic.
        return [Phase("decide", released - accepted)]
    if start is None or not accepted <= start["seen"] <= start["ready"] <= released:
        return [Phase("other", released - accepted)]
    reported = [Phase(name, start.get(name, 0.0) / 1000) for name in names.START_PHASES]
    unreported = start["ready"] - start["seen"] - sum(phase.seconds for phase in reported)
    return [
        Phase("decide", start["seen"] - accepted),
        *reported,
        Phase("other", unreported),
        Phase("routable", released - start["ready"]),
    ]


def report(pod: str, accepted_at: str, phases: Sequence[Phase]) -> dict[str, Any]:
    """Return the phases in the form of `Autoscaler.status.demand[].lastWake`.

    Args:
        pod: the name of the replica's Pod; empty if it is unknown.
        accepted_at: arrival of the first request, as an RFC 3339 time.
        phases: of the wake.
    """
    return {
        "pod": pod,
        "acceptedAt": accepted_at,
        "phases": [{"name": name, "milliseconds": round(1000 * seconds, 3)} for name, seconds in phases],
        "total": round(1000 * sum(phase.seconds for phase in phases), 3),
    }


def _start_report(pod: Mapping[str, Any] | None) -> dict[str, float] | None:
    """Return the node's report of a start; None without a report.

    It has each of `names.START_PHASES` in milliseconds, and the Unix seconds at which the node saw the Pod
    (`seen`) and at which the Pod was ready (`ready`).
    """
    condition = conditions.find(((pod or {}).get("status") or {}).get("conditions"), names.STARTED_CONDITION)
    try:
        message = orjson.loads((condition or {}).get("message") or "")
    except orjson.JSONDecodeError:
        return None
    if not isinstance(message, dict):
        return None
    numbers = {name: float(value) for name, value in message.items() if isinstance(value, int | float)}
    return numbers if {"seen", "ready"} <= numbers.keys() else None
