"""Checks that a value can be sent as JSON; a message names the field that cannot, and the rule. Pure."""

import math
from typing import Any

from serving.embedded.apiserver.schema.depth import DEEPEST

SMALLEST, LARGEST = -(2**63), 2**63 - 1
"""Bounds of an integer in Kubernetes' JSON, an int64."""
TOO_DEEP = f"nested too deep: at most {DEEPEST} levels"


def size(value: Any) -> int:
    """Return the characters that a value has at least as JSON; a part that aliases share counts each time.

    Raises:
        RecursionError: it is nested too deep, as a part that has an alias of itself is.
    """
    return _size(value, {}, 1)


def _size(value: Any, known: dict[int, int], depth: int) -> int:
    if not isinstance(value, dict | list):
        return len(value) + 1 if isinstance(value, str) else 1
    if id(value) in known:  # without it, each level of a document could double the time
        return known[id(value)]
    if depth > DEEPEST:
        raise RecursionError(TOO_DEEP)
    parts = value if isinstance(value, list) else (*value, *value.values())
    total = known[id(value)] = 1 + sum(_size(part, known, depth + 1) for part in parts)
    return total


def broken_rule(value: Any) -> str:
    """Return `FIELD: RULE` of the first value that JSON cannot have; empty where there is none."""
    waiting: list[tuple[str, Any, int]] = [("", value, 1)]
    while waiting:
        path, item, depth = waiting.pop()
        if rule := TOO_DEEP if depth > DEEPEST else _rule(item):
            return rule if depth > DEEPEST or not path else f"{path}: {rule}"
        if isinstance(item, dict):
            below = [(f"{path}.{key}".lstrip("."), child) for key, child in item.items()]
        elif isinstance(item, list):
            below = [(f"{path}[{index}]", child) for index, child in enumerate(item)]
        else:
            continue
        waiting += [(name, child, depth + isinstance(child, dict | list)) for name, child in reversed(below)]
    return ""


def _rule(value: Any) -> str:
    match value:
        case None | bool() | list():
            return ""
        case dict():
            return next((_key_rule(key) for key in value if _key_rule(key)), "")
        case int():
            return (
                ""
                if SMALLEST <= value <= LARGEST
                else "must be an integer of 64 bits: from -2^63 to 2^63 - 1"
            )
        case float():
            return "" if math.isfinite(value) else "must be a finite number"
        case str():
            return "" if _is_unicode(value) else "must be Unicode: it has half of a surrogate pair"
        case _:
            return f"must be a value of JSON, not {type(value).__name__}"


def _key_rule(key: Any) -> str:
    if not isinstance(key, str):
        return f"keys must be strings: write {str(key)[:40]!r} with quotes"
    return "" if _is_unicode(key) else "keys must be Unicode: one has half of a surrogate pair"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
