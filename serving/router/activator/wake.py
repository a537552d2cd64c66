"""Where the time of a wake went: between the first request that found no replica and its release. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from serving.resources import conditions, names

PARTS = ("fetch", "verify", "spawn", "import", "load", "warmup", "probe")
"""Of the node's message, in order, in milliseconds; `seen` and `ready` are unix seconds."""

Phase = tuple[str, float]
"""A name, and seconds."""


def phases(accepted: float, released: float, pod: Mapping[str, Any] | None) -> list[Phase]:
    """Return the phases in order; they add up to `released - accepted`.

    Args:
        accepted: when the first request was held; unix seconds.
        released: when it was sent to the replica.
        pod: the replica's; without what the node says of its start, everything is `other`.
    """
    said = _said(pod)
    if said is not None and said["ready"] <= accepted:
        return [("decide", released - accepted)]  # a standby replica, which had only to be chosen
    if said is None or not accepted <= said["seen"] <= said["ready"] <= released:
        return [("other", released - accepted)]
    parts = [(name, said.get(name, 0.0) / 1000) for name in PARTS]
    other = said["ready"] - said["seen"] - sum(seconds for _, seconds in parts)
    return [
        ("decide", said["seen"] - accepted),
        *parts,
        ("other", other),
        ("routable", released - said["ready"]),
    ]


def report(pod: str, accepted_at: str, found: Sequence[Phase]) -> dict[str, Any]:
    """Return the phases as `Autoscaler.status.demand[].lastWake` has them."""
    return {
        "pod": pod,
        "acceptedAt": accepted_at,
        "phases": [{"name": name, "milliseconds": round(1000 * seconds, 3)} for name, seconds in found],
        "total": round(1000 * sum(seconds for _, seconds in found), 3),
    }


def _said(pod: Mapping[str, Any] | None) -> dict[str, float] | None:
    found = conditions.find(((pod or {}).get("status") or {}).get("conditions"), names.STARTED_CONDITION)
    try:
        said = orjson.loads((found or {}).get("message") or "")
    except orjson.JSONDecodeError:
        return None
    if not isinstance(said, dict):
        return None
    numbers = {name: float(value) for name, value in said.items() if isinstance(value, int | float)}
    return numbers if {"seen", "ready"} <= numbers.keys() else None
