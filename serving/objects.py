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
