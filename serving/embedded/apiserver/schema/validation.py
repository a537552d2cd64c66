"""Whether an object has the structure that its schema asks for; every broken rule, each with its full path."""

import base64
import binascii
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any

from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.pruning import join
from serving.embedded.apiserver.schema.schemas import Schema
from serving.errors import Cause
from serving.resources import quantity

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "integer": (int,),
    "number": (int, float),
}  # fmt: skip
SIZES = {"int32": 2**31, "int64": 2**63}
"""Of an integer, by its format: one more than the largest."""


def check(value: Any, schema: Schema, path: str = "", *, partial: bool = False) -> Iterator[Cause]:
    """Yield what is wrong.

    Args:
        value: an object, or a part of one.
        schema: its structural schema.
        path: where `value` stands.
        partial: what is missing is fine (an apply configuration), except the keys of list-maps.
    """
    wrong = _wrong_type(value, schema)
    if wrong:
        yield status_errors.invalid(path, value, f"{path} in body must be of type {wrong}")
        return
    if isinstance(value, dict):
        yield from _map(value, schema, path, partial=partial)
    elif isinstance(value, list):
        yield from _list(value, schema, path, partial=partial)
    else:
        yield from scalar(value, schema, path)


def _wrong_type(value: Any, schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        number = isinstance(value, int | str) and not isinstance(value, bool)
        return "" if number else "integer or string"
    expected = schema.get("type")
    if expected is None:
        return ""
    if isinstance(value, bool) and expected != "boolean":
        return str(expected)
    return "" if isinstance(value, _TYPES[expected]) else str(expected)


def missing(value: dict[str, Any], schema: Schema, path: str) -> Iterator[Cause]:
    """Yield the members that a map must have and has not."""
    for name in schema.get("required") or ():
        if name not in value:
            yield status_errors.required(join(path, name))


def _map(value: dict[str, Any], schema: Schema, path: str, *, partial: bool) -> Iterator[Cause]:
    if not partial:
        yield from missing(value, schema, path)
    for key, item in value.items():
        below = schemas.child(schema, key)
        if below:
            yield from check(item, below, join(path, key), partial=partial)


def _list(value: list[Any], schema: Schema, path: str, *, partial: bool) -> Iterator[Cause]:
    least, most = schema.get("minItems"), schema.get("maxItems")
    if most is not None and len(value) > most:
        yield status_errors.too_many(path, len(value), most)
    if least is not None and len(value) < least and not partial:
        yield status_errors.invalid(path, len(value), f"{path} in body should have at least {least} items")
    keys = schemas.map_keys(schema)
    unique = schema.get("x-kubernetes-list-type") == "set"
    seen: list[Any] = []
    for index, item in enumerate(value):
        here = f"{path}[{index}]"
        yield from check(item, schemas.items(schema), here, partial=partial)
        key = schemas.key_of(item, schema) if keys else item
        if keys and key is None and partial and isinstance(item, dict):
            yield from (status_errors.required(join(here, name)) for name in keys if name not in item)
        if (keys or unique) and key is not None:
            if key in seen:
                yield status_errors.duplicate(here, key)
            seen.append(key)


def scalar(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    """Yield what is wrong with a string, number or boolean of the right type."""
    if "enum" in schema and value not in schema["enum"]:
        yield status_errors.unsupported(path, value, schema["enum"])
    if isinstance(value, str):
        yield from _string(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            yield status_errors.invalid(
                path, value, f"{path} in body should be greater than or equal to {schema['minimum']}"
            )
        if "maximum" in schema and value > schema["maximum"]:
            yield status_errors.invalid(
                path, value, f"{path} in body should be less than or equal to {schema['maximum']}"
            )
        size = "int32" if schema.get("format") == "int32" else "int64"
        if isinstance(value, int) and not -SIZES[size] <= value < SIZES[size]:
            yield status_errors.invalid(path, value, f"{path} in body must be an {size}")


def _string(value: str, schema: Schema, path: str) -> Iterator[Cause]:
    least, most = schema.get("minLength"), schema.get("maxLength")
    if most is not None and len(value) > most:
        yield status_errors.too_long(path, most)
    if least is not None and len(value) < least:
        yield status_errors.invalid(path, value, f"{path} in body should be at least {least} chars long")
    pattern = schema.get("pattern")
    if pattern is not None and not _compiled(pattern).search(value):
        yield status_errors.invalid(path, value, f"{path} in body should match '{pattern}'")
    rule = _broken_format(value, schema.get("format"))
    if rule:
        yield status_errors.invalid(path, value, rule)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _broken_format(value: str, name: str | None) -> str:
    try:
        if name == "quantity":
            quantity.parse(value)
        elif name == "date-time":
            datetime.fromisoformat(value)
        elif name == "byte":
            base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        return {
            "quantity": "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            "date-time": "must be an RFC 3339 date and time",
            "byte": "must be base64",
        }[str(name)]
    return ""
