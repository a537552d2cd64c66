"""What all plots have: a title, pictures, and the table that says the same in numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Table:
    """Numbers as text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Plot:
    """Pictures with one title, and their numbers."""

    title: str
    pictures: tuple[Markup, ...]
    table: Table
    legend: tuple[tuple[str, str], ...] = ()
    """CSS class and meaning of each kind of mark."""


def stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of the steps through these points."""
    found: list[tuple[float, float]] = []
    for x, y in points:
        if found:
            found.append((x, found[-1][1]))
        found.append((x, y))
    return found


def wide(values: Sequence[float]) -> bool:
    """Whether values are spread so far that only a logarithmic axis shows them."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > 8
