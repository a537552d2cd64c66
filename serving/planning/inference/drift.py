"""Whether an object in the API differs from the one that the planner wants."""

from typing import Any

from serving.objects import Object
from serving.planning.inference.observed import Observed
from serving.planning.inference.plan import Ensure
from serving.resources import kinds, names


def differs(observed: Observed, ensure: Ensure) -> bool:
    """Whether the object is missing or has to be applied again."""
    wanted = ensure.object
    existing = _existing(observed, ensure)
    if existing is None:
        return True
    if ensure.kind is kinds.ROUTE and not routes_alike(existing["spec"], wanted["spec"]):
        return True
    if ensure.kind is kinds.AUTOSCALER and existing["spec"] != wanted["spec"]:
        return True  # the wanted spec is complete: a field that it leaves out is removed
    return not covers(existing, wanted) or _is_on_demand(existing) != _is_on_demand(wanted)


def routes_alike(existing: Object, wanted: Object) -> bool:
    """Whether a Route's spec has the wanted one; leaving out `sticky` or `onDemand` removes it."""
    return (
        covers(existing, wanted)
        and ("sticky" in wanted or "sticky" not in existing)
        and _on_demand(existing) == _on_demand(wanted)
    )


def covers(existing: Any, wanted: Any) -> bool:
    """Whether every field of `wanted` has its value in `existing`; fields added by servers do not count."""
    if existing == wanted:  # the common case, checked at every reconcile
        return True
    if isinstance(wanted, dict):
        return isinstance(existing, dict) and all(
            covers(existing.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(existing, list) and len(existing) == len(wanted):
        return all(map(covers, existing, wanted))
    return False


def _existing(observed: Observed, ensure: Ensure) -> Object | None:
    if ensure.kind is kinds.ROUTE:
        return observed.route
    children = {
        kinds.DEPLOYMENT: observed.deployments,
        kinds.SERVICE: observed.services,
        kinds.AUTOSCALER: observed.autoscalers,
    }
    return children[ensure.kind].get(ensure.object["metadata"]["name"])


def _on_demand(spec: Object) -> list[bool]:
    return [backend.get("onDemand", False) for backend in spec.get("backends") or []]


def _is_on_demand(child: Object) -> bool:
    """Whether the activator watches the object; leaving the label out ends that."""
    return names.ON_DEMAND_LABEL in (child["metadata"].get("labels") or {})
