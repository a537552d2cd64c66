"""Objects as the text of `-o jsonpath=TEMPLATE`, and as the columns of `-o custom-columns=...`. Pure.

Values look as Go prints them, so that scripts written for kubectl read the same text.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import orjson

from serving.resources.formats.jsonpath import evaluation, parser
from serving.resources.formats.jsonpath.syntax import Path, Template

NO_VALUE = "<none>"
_BETWEEN_COLUMNS = re.compile(r",(?![^\[]*\])")
"""A comma outside of brackets, which unions and filters have."""
_IN_HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that Go escapes in JSON."""
_LEAST_WITH_EXPONENT = 1e21
"""Go prints floats of at least this size with an exponent."""
_LEAST_PLAIN_POWER = -4
"""Go prints floats of a size below 10 to this power with an exponent."""
_LEAST_PLAIN_POWER_IN_JSON = -6
"""The same bound for floats in JSON."""


class CustomColumn(NamedTuple):
    """A column of `-o custom-columns`."""

    header: str
    path: Path


def columns(spec: str) -> tuple[CustomColumn, ...]:
    """Return the columns of `HEADER:PATH,...`.

    Raises:
        ValueError: a column has another form, or an invalid path.
    """
    return tuple(map(_column, _BETWEEN_COLUMNS.split(spec)))


def _column(text: str) -> CustomColumn:
    header, colon, expression = text.partition(":")
    if not colon:
        raise ValueError(f"{text!r} is not HEADER:PATH, like NAME:.metadata.name")
    return CustomColumn(header, parser.path(expression))


def cells(columns: Sequence[CustomColumn], obj: Any) -> list[object]:
    """Return the row of an object.

    Raises:
        ValueError: a path does not fit the object.
    """
    row: list[object] = []
    for column in columns:
        values = evaluation.find(column.path, obj)
        row.append(",".join(map(_printed, values)) if values else NO_VALUE)
    return row


def text(template: Template, obj: Any) -> str:
    """Return the text of a template for an object; lists and objects in it are JSON.

    Raises:
        ValueError: a path does not fit the object.
    """
    return "".join(" ".join(map(_in_template, values)) for values in evaluation.results(template, obj))


def _in_template(value: Any) -> str:
    return _json(value) if isinstance(value, dict | list) else _printed(value)


def _json(value: Any) -> str:
    """Return a value as Go's `json.Marshal` writes it."""
    document = orjson.dumps(_with_numbers_of_go(value), option=orjson.OPT_SORT_KEYS).decode()
    return "".join(_IN_HTML.get(character, character) for character in document)


def _with_numbers_of_go(value: Any) -> Any:
    """Return the value with its floats as the JSON that Go writes: 90.0 is 90, and 1e-07 is 1e-7."""
    match value:
        case dict():
            return {key: _with_numbers_of_go(item) for key, item in value.items()}
        case list():
            return [_with_numbers_of_go(item) for item in value]
        case float():
            return orjson.Fragment(_float(value, _LEAST_PLAIN_POWER_IN_JSON).replace("e-0", "e-"))
        case _:
            return value


def _printed(value: Any) -> str:
    """Return a value as Go's `fmt.Print` writes it."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
        case float():
            return _float(value, _LEAST_PLAIN_POWER)
        case dict():
            return f"map[{' '.join(f'{key}:{_printed(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(map(_printed, value))}]"
        case _:
            return str(value)


def _float(value: float, least_plain_power: int) -> str:
    """Return a float, with an exponent if its size is below 10 to `least_plain_power`."""
    exact = Decimal(repr(value))
    if abs(value) >= _LEAST_WITH_EXPONENT or exact.adjusted() < least_plain_power:
        return re.sub(r"\.0(?=e|$)", "", f"{value!r}")
    return f"{exact:f}".removesuffix(".0")
