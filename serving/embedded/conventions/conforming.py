"""Whether an object is right by its schema, quickly; what is wrong with one that is not, `validation` says.

Nearly every write is right, so each schema is made into nested tests once, which look for nothing but a reason to
doubt and build no paths. A doubt is no verdict: then `validation` is asked.
"""

from collections.abc import Callable, Container
from typing import Any

from serving.embedded.conventions import schema as schemas
from serving.embedded.conventions import validation
from serving.embedded.conventions.schema import Schema
from serving.errors import Cause

Test = Callable[[Any], bool]

_TYPES: dict[str, frozenset[type]] = {
    "object": frozenset({dict}), "array": frozenset({list}), "string": frozenset({str}),
    "boolean": frozenset({bool}), "integer": frozenset({int}), "number": frozenset({int, float}),
}  # fmt: skip
_SCALAR_RULES = ("enum", "minimum", "maximum", "minLength", "maxLength", "pattern")
_FORMATS = ("quantity", "date-time", "byte")
_tests: dict[tuple[int, bool], tuple[Schema, Test]] = {}


def broken(
    obj: dict[str, Any], schema: Schema, *, known: Container[str] = (), partial: bool = False
) -> list[Cause]:
    """Return what is wrong with a whole object.

    Args:
        obj: the object.
        schema: of whole objects.
        known: parts that are known to be right, and are not looked into.
        partial: what is missing is fine, except the keys of list-maps.
    """
    found = [] if partial else list(validation.missing(obj, schema, ""))
    for key, value in obj.items():
        below = schemas.child(schema, key)
        if below and key not in known and not test(below, partial=partial)(value):
            found += validation.check(value, below, key, partial=partial)
    return found


def test(schema: Schema, *, partial: bool) -> Test:
    """Return the test of a schema; schemas are shared and never change, so it is made once."""
    made = _tests.get((id(schema), partial))
    if made is None or made[0] is not schema:
        made = _tests[id(schema), partial] = (schema, _make(schema, partial=partial))
    return made[1]


def _make(schema: Schema, *, partial: bool) -> Test:
    types = (
        frozenset({int, str})
        if schema.get("x-kubernetes-int-or-string")
        else _TYPES.get(schema.get("type", ""))
    )
    ruled, map_, list_ = _is_ruled(schema), _map(schema, partial=partial), _list(schema, partial=partial)

    def passes(value: Any) -> bool:
        kind = type(value)
        if types is not None and kind not in types:
            return False
        if kind is dict:
            return map_(value)
        if kind is list:
            return list_(value)
        return not (ruled or kind is int) or next(validation.scalar(value, schema, ""), None) is None

    return passes


def _is_ruled(schema: Schema) -> bool:
    """Whether more is asked of a scalar than its type; of an integer, its size always is."""
    return schema.get("format") in _FORMATS or any(rule in schema for rule in _SCALAR_RULES)


def _map(schema: Schema, *, partial: bool) -> Test:
    required = () if partial else tuple(schema.get("required") or ())
    named = schema.get("properties") or {}
    other = schemas.child({**schema, "properties": {}}, "")
    below: dict[str, Test | None] = {}

    def passes(value: dict[str, Any]) -> bool:
        for name in required:
            if name not in value:
                return False
        for key, item in value.items():
            if key in below:
                one = below[key]
            else:
                child = named.get(key, other)
                one = test(child, partial=partial) if child else None
                if key in named:
                    below[key] = one
            if one is not None and not one(item):
                return False
        return True

    return passes


def _list(schema: Schema, *, partial: bool) -> Test:
    least, most = 0 if partial else schema.get("minItems", 0), schema.get("maxItems")
    keys = schemas.map_keys(schema)
    is_set = schema.get("x-kubernetes-list-type") == "set"
    items = schemas.items(schema)

    def passes(value: list[Any]) -> bool:
        if len(value) < least or (most is not None and len(value) > most):
            return False
        one = test(items, partial=partial)
        if not all(one(item) for item in value):
            return False
        if is_set:
            return len(value) < 2 or (all(type(i) is str for i in value) and len({*value}) == len(value))
        return not keys or _distinct(value, keys)

    return passes


def _distinct(value: list[Any], keys: tuple[str, ...]) -> bool:
    """Whether every item is a map with all of its key, and no two have the same."""
    if not all(type(item) is dict for item in value):
        return False
    found = [tuple(item.get(key) for key in keys) for item in value]
    plain = all(type(part) is str or type(part) is int for key in found for part in key)
    return plain and len({*found}) == len(found)
