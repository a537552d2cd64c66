"""Maximum nesting of JSON: above any schema's, below what recursive code can process."""

from typing import Any

from serving import errors
from serving.embedded.apiserver import status_errors

DEEPEST = 100
"""Levels of nesting; CRD schemas have some twenty, orjson writes at most 254."""


def check(value: Any, label: str) -> None:
    """Look at every level of a value; `label` is its name for the message.

    Raises:
        errors.ApiError: 400, it is nested too deeply.
    """
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise too_deep(label)
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
            if isinstance(child, dict | list)
        ]


def too_deep(label: str) -> errors.ApiError:
    """Return the 400 of a value that is nested too deeply; `label` is its name."""
    return status_errors.bad_request(f"{label} is nested more than {DEEPEST} levels deep")
