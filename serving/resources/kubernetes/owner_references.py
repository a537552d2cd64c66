"""Owner references: the controlling owner of an object. Pure."""

from collections.abc import Mapping
from typing import Any

from serving.objects import Object
from serving.resources.kinds import Kind


def controller_reference(kind: Kind, owner: Mapping[str, Any], *, blocks_deletion: bool = True) -> Object:
    """Return the owner reference of an object that the controller of `owner` creates.

    Args:
        kind: the kind of `owner`.
        owner: the owner, as stored.
        blocks_deletion: whether a foreground deletion of `owner` waits for the object. For this the admission
            plugin OwnerReferencesPermissionEnforcement asks for the right to update the owner's finalizers.
    """
    meta = owner["metadata"]
    reference = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    return {**reference, "blockOwnerDeletion": True} if blocks_deletion else reference


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the owner reference that has `controller: true`, or None."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)
