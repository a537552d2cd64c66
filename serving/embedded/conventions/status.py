"""Errors as metav1.Status objects, which every Kubernetes client understands."""

from typing import Any

from serving import errors
from serving.resources.kinds import Kind


def to_status(error: errors.ApiError, kind: Kind | None = None, name: str = "") -> dict[str, Any]:
    """Return the Status object for an error; `kind` and `name` fill in details that the error lacks."""
    details = dict(error.details)
    if kind is not None:
        if kind.group:
            details.setdefault("group", kind.group)
        details.setdefault("kind", kind.plural)
    if name:
        details.setdefault("name", name)
    if error.causes:
        details["causes"] = [
            {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in error.causes
        ]
    status: dict[str, Any] = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": error.message, "reason": error.reason, "code": error.code,
    }  # fmt: skip
    if details:
        status["details"] = details
    return status


def success(kind: Kind, name: str, uid: str) -> dict[str, Any]:
    """Return the Status that a DELETE of something gone at once is answered with."""
    details = {"name": name, "kind": kind.plural, "uid": uid} | ({"group": kind.group} if kind.group else {})
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
