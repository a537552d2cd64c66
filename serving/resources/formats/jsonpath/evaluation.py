"""The values that a JSONPath leads to, and the values of each part of a template. Pure.

As with kubectl: a missing key leads to no value, an index outside of its list is an error.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from serving.resources.formats.jsonpath.syntax import (
    Descent,
    Field,
    Filter,
    Index,
    Literal,
    Path,
    Range,
    Slice,
    Step,
    Template,
    Union,
    Wildcard,
)

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def find(path: Path, value: Any) -> list[Any]:
    """Return the values that a path leads to.

    Raises:
        ValueError: an index or a filter meets something other than a list, an index is outside of its list,
            or a filter compares values of different types.
    """
    values = [value]
    for step in path:
        values = _after(step, values)
    return values


def results(template: Template, value: Any) -> Iterator[list[Any]]:
    """Yield the values of each part of a template, in order.

    A range yields the values of each part of its body, once for each value that its path leads to.

    Raises:
        ValueError: as `find`.
    """
    for part in template:
        if isinstance(part, Range):
            for each in find(part.path, value):
                yield from results(part.body, each)
        else:
            yield find(part, value)


def _after(step: Step, values: list[Any]) -> list[Any]:
    """Return the values that one step leads to from all of the values. As with kubectl, a null has none."""
    match step:
        case Literal(literal):
            return [literal]
        case Field(name):
            return [value[name] for value in values if isinstance(value, dict) and name in value]
        case Union(steps):
            return [result for each in steps for result in _after(each, values)]
        case _:
            return [result for value in values if value is not None for result in _of_one(step, value)]


def _of_one(step: Step, value: Any) -> list[Any]:
    """Return the values that a step leads to from one value that is not null."""
    match step:
        case Wildcard():
            return _children(value)
        case Descent():
            return list(_descendants(value))
        case Index(position):
            return [_item(position, _list(value))]
        case Slice():
            return _slice(step, _list(value))
        case Filter():
            return [item for item in _list(value) if _holds(step, item)]
        case _:
            raise AssertionError(step)


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _descendants(value: Any) -> Iterator[Any]:
    """Yield the value and everything in it, without scalars and without empty objects and lists."""
    if children := _children(value):
        yield value
        for child in children:
            yield from _descendants(child)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"an index or a filter needs a list, and meets {_type(value)}")  # noqa: TRY004 data
    return value


def _item(position: int, items: list[Any]) -> Any:
    if not -len(items) <= position < len(items):
        raise ValueError(f"index {position} is outside of a list of {len(items)}")
    return items[position]


def _slice(bounds: Slice, items: list[Any]) -> list[Any]:
    first, last = _from_start(bounds.first, 0, items), _from_start(bounds.last, len(items), items)
    if first == last:  # as with kubectl, even outside of the list
        return []
    if not (0 <= first < len(items) and 0 <= last <= len(items)):
        raise ValueError(f"{_written(bounds)} is outside of a list of {len(items)}")
    if first > last:
        raise ValueError(f"{_written(bounds)} starts after its end in a list of {len(items)}")
    if bounds.step is not None and bounds.step <= 0:
        raise ValueError(f"the step of {_written(bounds)} must be positive")
    return items[first : last : bounds.step]


def _written(bounds: Slice) -> str:
    """Return a slice as in a path, for messages."""
    parts = ("" if part is None else str(part) for part in (bounds.first, bounds.last, bounds.step))
    return f"slice [{':'.join(parts).removesuffix(':')}]"


def _from_start(bound: int | None, default: int, items: list[Any]) -> int:
    """Return a bound counted from the start; a negative bound counts from the end."""
    if bound is None:
        return default
    return bound + len(items) if bound < 0 else bound


def _holds(condition: Filter, item: Any) -> bool:
    """Whether a filter keeps an item; a side that leads to no value makes a comparison false."""
    if not condition.operator:  # `[?(@.name)]` keeps the items that have the path
        try:
            return bool(find(condition.left, item))
        except ValueError:
            return False
    left, right = find(condition.left, item), find(condition.right, item)
    if not left or not right:
        return False
    if len(left) > 1 or len(right) > 1:
        raise ValueError("a filter must compare one value with one value")
    return _compare(condition.operator, left[0], right[0])


def _compare(comparison: str, left: Any, right: Any) -> bool:
    are_numbers = all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in (left, right)
    )
    are_alike = type(left) is type(right) and isinstance(left, str | bool)
    if not are_numbers and not are_alike:
        raise ValueError(f"a filter cannot compare {_type(left)} with {_type(right)}")
    if isinstance(left, bool) and comparison not in ("==", "!="):
        raise ValueError(f"a filter cannot compare booleans by {comparison}")
    return _COMPARISONS[comparison](left, right)


def _type(value: Any) -> str:
    """Return the name of a value's type, or a scalar itself, for messages."""
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case None:
            return "null"
        case _:
            return f"{value!r}"
