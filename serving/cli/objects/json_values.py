"""Checks that a value can be sent as JSON; a message names the field that cannot, and the rule. Pure."""

import math
from typing import Any, NamedTuple

from serving.embedded.apiserver.schema.depth import DEEPEST

SMALLEST, LARGEST = -(2**63), 2**63 - 1
"""Bounds of an integer in Kubernetes' JSON, an int64."""
TOO_DEEP = f"nested too deep: at most {DEEPEST} levels"


def size(value: Any) -> int:
    """Return a lower bound of the characters of a value as JSON.

    A part that several YAML aliases share counts once for each alias.

    Raises:
        RecursionError: the value is nested too deep. A part with an alias of itself is nested without end.
    """
    return _size(value, {}, 1)


def _size(value: Any, sizes: dict[int, int], depth: int) -> int:
    """Return the size of a value at a level of nesting, 1 for the outermost.

    `sizes` keeps the sizes by `id` of the mapping or list: without it, a document whose levels each have two
    aliases of the level below would take a time that doubles with each level.
    """
    if not isinstance(value, dict | list):
        return len(value) + 1 if isinstance(value, str) else 1
    if id(value) in sizes:
        return sizes[id(value)]
    if depth > DEEPEST:
        raise RecursionError(TOO_DEEP)
    parts = value if isinstance(value, list) else (*value, *value.values())
    total = 1 + sum(_size(part, sizes, depth + 1) for part in parts)
    sizes[id(value)] = total
    return total


def broken_rule(value: Any) -> str:
    """Return `FIELD: RULE` of the first value, in the order of the document, that JSON cannot have.

    Without such a value, return an empty text. A value that is nested too deep has no field, as the path
    would be too long for a message.
    """
    pending = [_Visit("", value, 1)]
    while pending:
        path, item, depth = pending.pop()
        if depth > DEEPEST:
            return TOO_DEEP
        if rule := _rule(item):
            return f"{path}: {rule}" if path else rule
        if isinstance(item, dict):
            children = [(f"{path}.{key}".lstrip("."), child) for key, child in item.items()]
        elif isinstance(item, list):
            children = [(f"{path}[{index}]", child) for index, child in enumerate(item)]
        else:
            continue
        for child_path, child in reversed(children):  # `pop` takes the last one first
            is_nested = isinstance(child, dict | list)
            pending.append(_Visit(child_path, child, depth + 1 if is_nested else depth))
    return ""


class _Visit(NamedTuple):
    """A value that is still to be checked."""

    path: str
    """Such as `spec.predictors[0].name`; empty for the whole document."""
    value: Any
    depth: int
    """Level of nesting of the innermost mapping or list, 1 for the whole document."""


def _rule(value: Any) -> str:
    """Return the rule that the value itself breaks, without the values in it; empty if it breaks none."""
    match value:
        case None | bool() | list():
            return ""
        case dict():
            return next(filter(None, map(_key_rule, value)), "")
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
