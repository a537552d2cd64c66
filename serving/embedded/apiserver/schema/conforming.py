"""Whether an object is right by its schema, quickly; what is wrong with one that is not, `validation` says.

Nearly every write is right, so each schema is made into nested tests once, which look for nothing but a reason to
doubt and build no paths. A doubt is no verdict: then `validation` is asked.
"""

import functools
import math
import re
from collections.abc import Callable, Container
from datetime import datetime
from typing import Any, Literal, get_args

from serving.embedded.apiserver.schema import schemas, validation
from serving.embedded.apiserver.schema.schemas import Schema
from serving.errors import Cause

Test = Callable[[Any], bool]
Mode = Literal["whole", "partial", "clean"]

_TYPES: dict[str, frozenset[type]] = {
    "object": frozenset({dict}), "array": frozenset({list}), "string": frozenset({str}),
    "boolean": frozenset({bool}), "integer": frozenset({int}), "number": frozenset({int, float}),
}  # fmt: skip
_SCALAR_RULES = ("enum", "minimum", "maximum", "minLength", "maxLength", "pattern")
_FORMATS = ("quantity", "date-time", "byte")
_LARGEST = validation.SIZES["int64"]


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
    """Return the test of a schema."""
    return _test(schema, "partial" if partial else "whole")


def clean(value: Any, schema: Schema) -> bool:
    """Whether reading the value by `structure` would change nothing, and nothing in it is wrong; what is missing is fine."""
    return _test(schema, "clean")(value)


def _test(schema: Schema, mode: Mode) -> Test:
    return _TESTS[mode](schema)


def _make(schema: Schema, mode: Mode) -> Test:
    if mode == "clean" and schema.get("format") == "quantity":
        types: frozenset[type] | None = _TYPES["string"]
    elif schema.get("x-kubernetes-int-or-string"):
        types = frozenset({int, str})
    else:
        types = _TYPES.get(schema.get("type", ""))
    if schema is schemas.ANY:
        return _is_undescribed if mode == "clean" else _is_undescribed_or_null
    map_, list_, scalar = _map(schema, mode), _list(schema, mode), _scalar(schema)
    if types == _TYPES["object"]:
        return lambda value: type(value) is dict and map_(value)
    if types == _TYPES["array"]:
        return lambda value: type(value) is list and list_(value)
    if types is not None:
        return lambda value: type(value) in types and scalar(value)
    nulls = mode != "clean"

    def passes(value: Any) -> bool:
        kind = type(value)
        if kind is dict:
            return map_(value)
        if kind is list:
            return list_(value)
        return (nulls or value is not None) and scalar(value)

    return passes


_TESTS: dict[Mode, Callable[[Schema], Test]] = {
    mode: schemas.once(functools.partial(_make, mode=mode)) for mode in get_args(Mode)
}


def _is_undescribed(value: Any) -> bool:
    """Whether a value of which the schema says nothing can be kept as it is: no nulls, and integers that fit."""
    return value is not None and _is_kept(value, _is_undescribed)


def _is_undescribed_or_null(value: Any) -> bool:
    return value is None or _is_kept(value, _is_undescribed_or_null)


def _is_kept(value: Any, below: Test) -> bool:
    sort = type(value)
    if sort is dict:
        return all(map(below, value.values()))
    if sort is list:
        return all(map(below, value))
    return sort is not int or -_LARGEST <= value < _LARGEST


def _plain(schema: Schema) -> type | None:
    """Return the type that is all that is asked of a scalar, if it is one."""
    plain = {"string": str, "boolean": bool}.get(schema.get("type", ""))
    return None if _is_ruled(schema) or schema.get("x-kubernetes-int-or-string") else plain


def _is_ruled(schema: Schema) -> bool:
    return schema.get("format") in _FORMATS or any(rule in schema for rule in _SCALAR_RULES)


def _scalar(schema: Schema) -> Test:
    """Return the test of a scalar of the right type; of an integer, its size always is asked."""
    rules = {rule for rule in _SCALAR_RULES if rule in schema}
    sort, form = schema.get("type"), schema.get("format")
    if sort == "string" and form not in _FORMATS and rules == {"enum"}:
        return frozenset(schema["enum"]).__contains__
    if sort == "integer" and rules <= {"minimum", "maximum"}:
        size = validation.SIZES["int32" if form == "int32" else "int64"]
        least, most = max(schema.get("minimum", -size), -size), min(schema.get("maximum", size - 1), size - 1)
        return lambda value: bool(least <= value <= most)
    if sort == "string" and form not in _FORMATS and rules <= {"minLength", "maxLength", "pattern"}:
        short, long = schema.get("minLength", 0), schema.get("maxLength", math.inf)
        search = re.compile(schema.get("pattern", "")).search
        return lambda value: short <= len(value) <= long and search(value) is not None
    if sort == "string" and form == "date-time" and not rules:
        return _is_time
    ruled = _is_ruled(schema)

    def passes(value: Any) -> bool:
        return not (ruled or type(value) is int) or next(validation.scalar(value, schema, ""), None) is None

    return passes


def _is_time(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _map(schema: Schema, mode: Mode) -> Test:
    required = tuple(schema.get("required") or ()) if mode == "whole" else ()
    named = schema.get("properties") or {}
    other = schemas.child({**schema, "properties": {}}, "")
    below: dict[str, tuple[type | None, Test]] = {}
    others: list[tuple[type | None, Test]] = []

    def find(key: str) -> tuple[type | None, Test]:
        if key in named:
            found = below[key] = (_plain(named[key]), _test(named[key], mode))
            return found
        if not others:
            others.append((None, _unknown(mode)) if other is None else (_plain(other), _test(other, mode)))
        return others[0]

    def passes(value: dict[str, Any]) -> bool:
        for name in required:
            if name not in value:
                return False
        for key, item in value.items():
            plain, one = below.get(key) or find(key)
            if type(item) is not plain and not one(item):
                return False
        return True

    return passes


def _unknown(mode: Mode) -> Test:
    return lambda _: mode != "clean"


def _list(schema: Schema, mode: Mode) -> Test:
    least, most = 0 if mode != "whole" else schema.get("minItems", 0), schema.get("maxItems", math.inf)
    is_set = schema.get("x-kubernetes-list-type") == "set"
    items = schemas.items(schema)
    keys = schemas.map_keys(schema)
    properties = items.get("properties") or {}
    defaults = tuple((key, properties.get(key, {}).get("default")) for key in keys)

    one: Test | None = None

    def passes(value: list[Any]) -> bool:
        nonlocal one
        if not least <= len(value) <= most:
            return False
        if one is None:
            one = _test(items, mode)
        for item in value:
            if not one(item):
                return False
        if is_set:
            return len(value) < 2 or (all(type(i) is str for i in value) and len({*value}) == len(value))
        return not keys or _distinct(value, defaults)

    return passes


def _distinct(value: list[Any], keys: tuple[tuple[str, Any], ...]) -> bool:
    """Whether every item is a map with all of its key, and no two have the same; `keys` come with their defaults."""
    for item in value:
        if type(item) is not dict:
            return False
        for key, default in keys:
            part = item.get(key, default)
            if type(part) is not str and type(part) is not int:
                return False
    if len(keys) == 1:
        ((only, default),) = keys
        return len({item.get(only, default) for item in value}) == len(value)
    return len({tuple([item.get(key, default) for key, default in keys]) for item in value}) == len(value)
