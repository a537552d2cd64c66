"""The maximum nesting of JSON values: deeper than any kind's schema, shallow enough for recursive code."""

from typing import Any

from serving import errors
from serving.embedded.apiserver import status_errors

DEEPEST = 100
"""Levels of nesting; CRD schemas have some twenty, orjson writes at most 254."""


def check(value: Any, label: str) -> None:
    """Check the nesting of a JSON value, without recursion; `label` names the value in the message.

    Raises:
        errors.ApiError: 400, the value is nested too deeply.
    """
    # The objects and lists of one level of nesting; scalars have no children.
    level = [value] if isinstance(value, dict | list) else []
    depth = 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise too_deep(label)
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]


def too_deep(label: str) -> errors.ApiError:
    """Return the error 400 for a value that is nested too deeply; `label` names the value."""
    return status_errors.bad_request(f"{label} is nested more than {DEEPEST} levels deep")
