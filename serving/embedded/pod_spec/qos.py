"""The quality of service class of a Pod, and the order of containers for the kernel's OOM killer. Pure.

https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from serving.resources.formats import quantity

_RESOURCES = ("cpu", "memory")


class _Amounts(NamedTuple):
    """The requests and the limits of one container that are above 0, by resource: cores and bytes."""

    requests: dict[str, Decimal]
    limits: dict[str, Decimal]


def qos_class(spec: Mapping[str, Any]) -> str:
    """Return the class of a Pod's spec: `Guaranteed`, `Burstable` or `BestEffort`."""
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    amounts = [_amounts(container) for container in containers]
    if not any(each.requests for each in amounts):  # a limit is a request too
        return "BestEffort"
    guaranteed = all(set(each.limits) == set(_RESOURCES) and each.requests == each.limits for each in amounts)
    return "Guaranteed" if guaranteed else "Burstable"


def oom_score_adjustment(spec: Mapping[str, Any], container: Mapping[str, Any], machine_bytes: int) -> int:
    """Return the `oom_score_adj` of a container, 2 to 1,000: the less memory it requests, the higher.

    https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior
    A Guaranteed Pod gets 2 instead of -997 as in Kubernetes: ordinary users may not set a negative value, and
    the components of `slipway up`, without which no Pod is served, have 0.

    Args:
        spec: the spec of the Pod.
        container: one container of the spec.
        machine_bytes: memory of the machine.
    """
    match qos_class(spec):
        case "BestEffort":
            return 1000
        case "Guaranteed":
            return 2
    requested = _amounts(container).requests.get("memory", Decimal(0))
    return min(max(2, 1000 - int(1000 * requested / machine_bytes)), 999)


def _amounts(container: Mapping[str, Any]) -> _Amounts:
    """Return the amounts of a container; the limit of a resource is the default of its request."""
    resources = container.get("resources") or {}
    limits = _positive(resources.get("limits") or {})
    return _Amounts({**limits, **_positive(resources.get("requests") or {})}, limits)


def _positive(amounts: Mapping[str, Any]) -> dict[str, Decimal]:
    parsed = {name: quantity.parse(amounts[name]) for name in _RESOURCES if name in amounts}
    return {name: amount for name, amount in parsed.items() if amount > 0}
