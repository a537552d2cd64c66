"""The elements of a JSONPath: steps from value to value; and a template of texts, paths and ranges. Pure."""

from dataclasses import dataclass
from typing import TypeAlias

Scalar = bool | int | float | str


@dataclass(frozen=True)
class Literal:
    """A text in quotes or around the braces, a number, `true` or `false`."""

    value: Scalar


@dataclass(frozen=True)
class Field:
    """`.name` or `['name']`."""

    name: str


@dataclass(frozen=True)
class Wildcard:
    """`.*`: every value of an object or a list."""


@dataclass(frozen=True)
class Descent:
    """`..`: an object or list, and every object and list in it."""


@dataclass(frozen=True)
class Index:
    """`[n]`; a negative one counts from the end."""

    position: int


@dataclass(frozen=True)
class Slice:
    """`[first:last:step]`: the items from `first` to before `last`; `[*]` is `[:]`."""

    first: int | None
    last: int | None
    step: int | None


@dataclass(frozen=True)
class Union:
    """`[a,b]`: the results of each, in turn."""

    steps: "tuple[Step, ...]"


@dataclass(frozen=True)
class Filter:
    """`[?(left operator right)]`: the items for which it holds; without an operator, those with `left`."""

    left: "Path"
    operator: str
    right: "Path"


Step: TypeAlias = Literal | Field | Wildcard | Descent | Index | Slice | Union | Filter
Path: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True)
class Range:
    """`{range path}body{end}`: the body for each result of the path."""

    path: Path
    body: "Template"


Template: TypeAlias = "tuple[Path | Range, ...]"
