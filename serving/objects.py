"""The objects of the Kubernetes API as this code has them: decoded JSON, with `apiVersion`, `kind` and
`metadata`. Pure.
"""

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]
"""An object, or the part of one that its user reads. Objects of a cache are shared: code that changes
one copies it first.
"""


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """Whether the object's deletion has begun: it waits for finalizers, dependents or a grace period."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def user_metadata(obj: Mapping[str, Any]) -> Object:
    """Return the metadata that users and their tools change, and the generation, which changes with the spec.

    The fields that are left out change with the status, too.
    """
    left_out = ("resourceVersion", "managedFields")
    return {key: value for key, value in obj["metadata"].items() if key not in left_out}
