"""Errors of the API, worded as in kube-apiserver, and their metav1.Status objects.

The wording is that of k8s.io/apimachinery/pkg/util/validation/field/errors.go and pkg/api/errors/errors.go.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from serving import errors
from serving.errors import Cause
from serving.resources.kinds import Kind

LONGEST_VALUE = 256
"""Most characters of a value that a message shows."""


def show(value: Any) -> str:
    """Return the value as JSON, shortened."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "..."


def invalid(path: str, value: Any, rule: str) -> Cause:
    return Cause(path, f"Invalid value: {show(value)}: {rule}", "FieldValueInvalid")


def required(path: str, rule: str = "") -> Cause:
    return Cause(path, f"Required value: {rule}" if rule else "Required value", "FieldValueRequired")


def unsupported(path: str, value: Any, supported: Iterable[Any]) -> Cause:
    known = ", ".join(show(choice) for choice in supported)
    return Cause(
        path, f"Unsupported value: {show(value)}: supported values: {known}", "FieldValueNotSupported"
    )


def duplicate(path: str, value: Any) -> Cause:
    return Cause(path, f"Duplicate value: {show(value)}", "FieldValueDuplicate")


def forbidden(path: str, rule: str) -> Cause:
    return Cause(path, f"Forbidden: {rule}", "FieldValueForbidden")


def too_long(path: str, limit: int) -> Cause:
    return Cause(path, f"Too long: may not be more than {limit} bytes", "FieldValueTooLong")


def too_many(path: str, count: int, limit: int) -> Cause:
    return Cause(path, f"Too many: {count}: must have at most {limit} items", "FieldValueTooMany")


def qualified(kind: Kind) -> str:
    """Return the kind and its group, such as `Deployment.apps`; `Pod` for the core group."""
    return f"{kind.kind}.{kind.group}" if kind.group else kind.kind


def resource(kind: Kind) -> str:
    """Return the resource and its group, such as `deployments.apps`; `pods` for the core group."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def details(kind: Kind, name: str, uid: str = "") -> dict[str, Any]:
    """Return the `details` of a Status for an object.

    Its `kind` is the kind; `not_found` and `conflict` replace it by the plural, as kube-apiserver does.
    """
    fields = {"name": name, "group": kind.group, "kind": kind.kind, "uid": uid}
    return {key: value for key, value in fields.items() if value}


def unprocessable(kind: Kind, name: str, causes: Sequence[Cause]) -> errors.Invalid:
    """Return the 422 that names every broken rule."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f'{qualified(kind)} "{name}" is invalid: {text}'
    return errors.Invalid(422, "Invalid", message, causes, details(kind, name))


def bad_request(message: str, causes: Sequence[Cause] = ()) -> errors.ApiError:
    """Return the 400 for a request that cannot be understood."""
    return errors.ApiError(400, "BadRequest", message, causes)


def conflict(kind: Kind, name: str, reason: str, causes: Sequence[Cause] = ()) -> errors.Conflict:
    """Return the 409 for a stale write or a failed precondition."""
    message = f'Operation cannot be fulfilled on {resource(kind)} "{name}": {reason}'
    return errors.Conflict(409, "Conflict", message, causes, {**details(kind, name), "kind": kind.plural})


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def method_not_allowed(
    message: str = "the server does not allow this method on the requested resource",
) -> errors.ApiError:
    """Return the 405 for a method that the resource does not have."""
    return errors.ApiError(405, "MethodNotAllowed", message)


def no_resource(hint: str = "") -> errors.NotFound:
    """Return the 404 for a path that is not served; `hint` names the alternative."""
    message = "the server could not find the requested resource"
    return errors.NotFound(404, "NotFound", f"{message}: {hint}" if hint else message)


def not_found(kind: Kind, name: str) -> errors.NotFound:
    message = f'{resource(kind)} "{name}" not found'
    return errors.NotFound(404, "NotFound", message, (), {**details(kind, name), "kind": kind.plural})


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
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.code,
    }
    if details or error.code == 404:  # `kubectl debug` expects each 404 to have details
        status["details"] = details
    return status


def success(kind: Kind, name: str, uid: str) -> dict[str, Any]:
    """Return the Status of a DELETE that removed the object at once."""
    details = {"name": name, "kind": kind.plural, "uid": uid} | ({"group": kind.group} if kind.group else {})
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
