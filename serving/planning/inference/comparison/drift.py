"""Whether an object in the API differs from the desired one."""

from typing import Any

from serving.objects import Object
from serving.planning.inference.comparison.canonical_template import canonical
from serving.planning.inference.observed import ObservedObjects
from serving.planning.inference.plan import Ensure
from serving.resources import kinds, names
from serving.resources.base import Base
from serving.resources.route import RouteBackend, RouteSpec

_ALWAYS_DESIRED = ("backends", "segments")
"""Optional fields of a Route that every desired one has: `covers` compares all of their items."""


def differs(observed: ObservedObjects, ensure: Ensure) -> bool:
    """Whether the object is missing or has to be applied again."""
    desired = ensure.object
    existing = _existing(observed, ensure)
    if existing is None:
        return True
    if ensure.kind is kinds.ROUTE and not routes_alike(existing["spec"], desired["spec"]):
        return True
    if ensure.kind is kinds.AUTOSCALER and _without_count(existing["spec"]) != desired["spec"]:
        return True  # the desired spec is complete: server-side apply removes a field that it omits
    if _is_on_demand(existing) != _is_on_demand(desired):
        return True
    if ensure.kind in (kinds.DEPLOYMENT, kinds.DAEMON_SET):
        return not _workload_covers(existing, desired)
    return not covers(existing, desired)


def template_covers(stored: Object, desired: Object) -> bool:
    """Whether every field of a desired Pod template has its value in the stored one, in any notation."""
    return covers(stored, desired) or covers(canonical(stored), canonical(desired))


def _workload_covers(existing: Object, desired: Object) -> bool:
    """Whether a stored Deployment or DaemonSet covers the desired one, its Pod template in any notation."""
    if covers(existing, desired):
        return True
    return covers(_without_template(existing), _without_template(desired)) and template_covers(
        existing["spec"]["template"], desired["spec"]["template"]
    )


def _without_template(workload: Object) -> Object:
    return {**workload, "spec": {**workload["spec"], "template": {}}}


def routes_alike(existing: Object, desired: Object) -> bool:
    """Whether a Route's spec needs no update; a stored optional field that `desired` omits needs one."""
    return covers(existing, desired) and _optional(existing) == _optional(desired)


def covers(existing: Any, desired: Any) -> bool:
    """Whether every field of `desired` has its value in `existing`, which may have further fields.

    None in `desired` is the value of an absent field.
    """
    if existing == desired:  # the common case, checked at every reconcile
        return True
    if isinstance(desired, dict):
        return isinstance(existing, dict) and all(
            covers(existing.get(key), value) for key, value in desired.items()
        )
    if isinstance(desired, list) and isinstance(existing, list) and len(existing) == len(desired):
        return all(map(covers, existing, desired))
    return False


def _without_count(spec: Object) -> Object:
    """Return the spec of an Autoscaler without the count, which other autoscalers write."""
    return {field: value for field, value in spec.items() if field != "replicas"}


def _existing(observed: ObservedObjects, ensure: Ensure) -> Object | None:
    if ensure.kind is kinds.ROUTE:
        return observed.route
    children = {
        kinds.DEPLOYMENT: observed.deployments,
        kinds.SERVICE: observed.services,
        kinds.AUTOSCALER: observed.autoscalers,
        kinds.POD_DISRUPTION_BUDGET: observed.budgets or {},
        kinds.DAEMON_SET: observed.daemon_sets or {},
    }
    return children[ensure.kind].get(ensure.object["metadata"]["name"])


def _defaults(model: type[Base]) -> Object:
    """Return the optional fields of a type, without those that are always desired, with their defaults.

    A default that is no text is empty (None, false or an object without fields): all of these become None.
    """
    return {
        str(field.alias): field.default if isinstance(field.default, str) else None
        for name, field in model.model_fields.items()
        if not field.is_required() and name not in _ALWAYS_DESIRED
    }


_ROUTE_DEFAULTS, _BACKEND_DEFAULTS = _defaults(RouteSpec), _defaults(RouteBackend)


def _optional(spec: Object) -> list[Any]:
    """Return the values of a Route's optional fields, in a fixed order; an absent one has its default."""
    of_route = [spec.get(field) or default for field, default in _ROUTE_DEFAULTS.items()]
    return of_route + [
        backend.get(field) or default
        for backend in spec.get("backends") or []
        for field, default in _BACKEND_DEFAULTS.items()
    ]


def _is_on_demand(child: Object) -> bool:
    """Whether the object has the label by which the activator watches it; an apply may have to remove it."""
    return names.ON_DEMAND_LABEL in (child["metadata"].get("labels") or {})
