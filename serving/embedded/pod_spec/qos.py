"""The quality of service class of a Pod, and which containers the kernel kills first without memory. Pure.

https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from serving.resources.formats import quantity

_RESOURCES = ("cpu", "memory")


def qos_class(spec: Mapping[str, Any]) -> str:
    """Return the class of a Pod's spec: `Guaranteed`, `Burstable` or `BestEffort`."""
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    amounts = [_amounts(container) for container in containers]
    if not any(amount for pair in amounts for amount in pair):
        return "BestEffort"
    guaranteed = all(set(limits) == set(_RESOURCES) and requests == limits for requests, limits in amounts)
    return "Guaranteed" if guaranteed else "Burstable"


def oom_score_adjustment(spec: Mapping[str, Any], container: Mapping[str, Any], machine_bytes: int) -> int:
    """Return the `oom_score_adj` of a container, 2 to 1,000: the less memory it requests, the higher.

    https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior
    A Guaranteed Pod gets 2, not Kubernetes' -997, which ordinary users may not set: components have 0, and
    without them no Pod is served.
    """
    match qos_class(spec):
        case "BestEffort":
            return 1000
        case "Guaranteed":
            return 2
    requested = _amounts(container)[0].get("memory", Decimal(0))
    return min(max(2, 1000 - int(1000 * requested / machine_bytes)), 999)


def _amounts(container: Mapping[str, Any]) -> tuple[dict[str, Decimal], dict[str, Decimal]]:
    """Return (requests, limits) above 0; a request that is not given is the limit."""
    resources = container.get("resources") or {}
    limits = _positive(resources.get("limits") or {})
    return {**limits, **_positive(resources.get("requests") or {})}, limits


def _positive(amounts: Mapping[str, Any]) -> dict[str, Decimal]:
    parsed = {name: quantity.parse(amounts[name]) for name in _RESOURCES if name in amounts}
    return {name: amount for name, amount in parsed.items() if amount > 0}
