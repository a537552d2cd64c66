"""The subset of JSONPath of printer columns: keys, indexes, `[*]` and `[?(@.key=="value")]`."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

_Step = Callable[[Any], Iterator[Any]]
_TOKEN = re.compile(
    r"""\.(?P<key>[A-Za-z_][\w-]*)
    | \[(?P<all>\*)\]
    | \[(?P<index>-?\d+)\]
    | \['(?P<quoted>[^']+)'\]
    | \[\?\(@\.(?P<field>[\w.-]+)\s*==\s*["'](?P<expected>[^"']*)["']\)\]""",
    re.VERBOSE,
)


def find(path: str, value: Any) -> list[Any]:
    """Return the matches of the path in the value.

    Raises:
        ValueError: the path is not in this subset of JSONPath.
    """
    matches = [value]
    for step in _steps(path):
        matches = [match for item in matches for match in step(item)]
    return matches


@cache
def _steps(path: str) -> tuple[_Step, ...]:
    steps = []
    position = 0
    while position < len(path):
        token = _TOKEN.match(path, position)
        if token is None:
            raise ValueError(f"{path!r}: not understood from character {position}")
        steps.append(_step(token))
        position = token.end()
    return tuple(steps)


def _step(token: re.Match[str]) -> _Step:
    key = token["key"] or token["quoted"]
    if key is not None:
        return lambda item: iter([item[key]] if isinstance(item, dict) and key in item else [])
    if token["all"]:
        return lambda item: iter(item.values() if isinstance(item, dict) else _list(item))
    if token["index"] is not None:
        index = int(token["index"])
        return lambda item: iter(_list(item)[index : index + 1 or None])
    field, expected = "." + token["field"], token["expected"]
    return lambda item: iter([element for element in _list(item) if find(field, element) == [expected]])


def _list(item: Any) -> list[Any]:
    return item if isinstance(item, list) else []
