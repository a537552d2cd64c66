"""Applies DELETE to an object: at once, or after its finalizers, its dependents or its grace period."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from serving import clock
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.admission.pod import MOST_GRACE_SECONDS
from serving.embedded.apiserver.schema import pruning, schemas, validation
from serving.embedded.apiserver.schema.schemas import Schema
from serving.objects import is_deleting
from serving.resources import kinds
from serving.resources.kinds import Kind
from serving.resources.kubernetes import pod_phases

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
"""Finalizers with which the garbage collector keeps an owner until its dependents are orphaned or deleted."""
_FINALIZER_OF_POLICY = {"Orphan": ORPHAN, "Foreground": FOREGROUND, "Background": None}
_TEXT: Schema = {"type": "string"}
_OPTIONS: Schema = {
    "type": "object",
    "properties": {
        "apiVersion": _TEXT,
        "kind": _TEXT,
        "propagationPolicy": _TEXT,
        "orphanDependents": {"type": "boolean"},
        "gracePeriodSeconds": {"type": "integer", "minimum": 0, "maximum": MOST_GRACE_SECONDS},
        "preconditions": {"type": "object", "properties": {"uid": _TEXT, "resourceVersion": _TEXT}},
        "dryRun": {"type": "array", "items": _TEXT},
    },
}
"""metav1.DeleteOptions."""
DEFAULT_GRACE_SECONDS = 30
"""Default of terminationGracePeriodSeconds, as on Kubernetes."""


def delete(kind: Kind, old: dict[str, Any], options: Mapping[str, Any], now: str) -> dict[str, Any] | None:
    """Return the object to store until it may go, or None where it goes now.

    Args:
        kind: of the object.
        old: as stored.
        options: metav1.DeleteOptions: preconditions, propagationPolicy, gracePeriodSeconds.
        now: RFC 3339.

    Raises:
        errors.Conflict: a precondition does not hold.
        errors.ApiError: 400 for invalid options.
    """
    options = _validated(dict(options))
    _check_preconditions(kind, old, options)
    obj: dict[str, Any] = schemas.clone(old)
    meta = obj["metadata"]
    finalizers = _finalizers(meta.get("finalizers") or [], options, deleting=is_deleting(obj))
    if finalizers != (meta.get("finalizers") or []):
        meta["finalizers"] = finalizers
    if not meta.get("finalizers"):
        meta.pop("finalizers", None)
    grace = _grace(kind, obj, options)
    if not finalizers and grace == 0:
        return None
    if is_deleting(obj) and meta.get("deletionGracePeriodSeconds", 0) <= grace:
        return obj  # another DELETE can only shorten the grace period
    if not is_deleting(obj) and meta.get("generation"):
        meta["generation"] += 1
    due = datetime.fromisoformat(now) + timedelta(seconds=grace)
    meta["deletionTimestamp"] = clock.rfc3339(due)
    meta["deletionGracePeriodSeconds"] = grace
    if kind == kinds.NAMESPACE:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return obj


def is_finished(kind: Kind, obj: Mapping[str, Any]) -> bool:
    """Whether nothing holds an object that is being deleted any longer."""
    meta = obj["metadata"]
    if not is_deleting(obj) or meta.get("finalizers"):
        return False
    return kind != kinds.POD or not meta.get("deletionGracePeriodSeconds")


def _validated(options: dict[str, Any]) -> dict[str, Any]:
    """Return metav1.DeleteOptions without nulls; refuse unknown fields and wrong values."""
    unknown = validation.unknown_fields(validation.check(options, _OPTIONS, "sent"))
    known: dict[str, Any] = pruning.prune(options, _OPTIONS)
    causes = [status_errors.forbidden(cause.field, cause.message) for cause in unknown]
    causes += validation.causes(known, _OPTIONS)
    if causes:
        texts = "; ".join(f"{cause.field}: {cause.message}" for cause in causes)
        raise status_errors.bad_request(f"DeleteOptions is invalid: {texts}", causes)
    return known


def _check_preconditions(kind: Kind, old: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    preconditions = options.get("preconditions") or {}
    meta = old["metadata"]
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        expected = preconditions.get(field)
        if expected is not None and expected != meta.get(field):
            why = (
                f"Precondition failed: {label} in precondition: {expected}, "
                f"{label} in object meta: {meta.get(field)}"
            )
            raise status_errors.conflict(kind, meta["name"], why)


def _finalizers(current: list[str], options: Mapping[str, Any], *, deleting: bool) -> list[str]:
    """Return the finalizers with that of the propagation policy, and without that of another policy."""
    policy = options.get("propagationPolicy")
    if options.get("orphanDependents") is not None:
        if policy is not None:
            raise status_errors.bad_request("orphanDependents and propagationPolicy cannot be both set")
        policy = "Orphan" if options["orphanDependents"] else "Background"
    if policy is None:
        return current
    if policy not in _FINALIZER_OF_POLICY:
        cause = status_errors.unsupported("propagationPolicy", policy, [*_FINALIZER_OF_POLICY, None])
        raise status_errors.bad_request(
            f"DeleteOptions is invalid: propagationPolicy: {cause.message}", (cause,)
        )
    finalizer = _FINALIZER_OF_POLICY[policy]
    kept = [name for name in current if name not in (ORPHAN, FOREGROUND) or name == finalizer]
    # A deletion that waits for a grace period alone is not made to wait for dependents.
    waits_for_grace = deleting and not kept
    if finalizer and finalizer not in kept and not waits_for_grace:
        kept.append(finalizer)
    return kept


def _grace(kind: Kind, obj: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """Return the grace period in seconds; only a Pod that may still run on a node has one."""
    if kind != kinds.POD:
        return 0
    requested_grace = options.get("gracePeriodSeconds")
    spec = obj.get("spec") or {}
    if requested_grace == 0 or pod_phases.has_ended(obj) or not spec.get("nodeName"):
        return 0
    earlier_grace = obj["metadata"].get("deletionGracePeriodSeconds")
    grace = (
        int(spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS))
        if requested_grace is None
        else requested_grace
    )
    grace = min(max(grace, 1), MOST_GRACE_SECONDS)  # an older version stored larger ones
    return grace if earlier_grace is None else min(grace, int(earlier_grace))
