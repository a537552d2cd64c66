"""The parts of every plot: a title, pictures, and a table of the same numbers. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class PlotTable:
    """A table of formatted numbers; each row has a text for each column."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Plot:
    """Pictures with one title, and a table of their numbers."""

    title: str
    pictures: tuple[Markup, ...]
    table: PlotTable
    legend: tuple[tuple[str, str], ...] = ()
    """CSS class and meaning of each kind of mark."""


_WIDE_RATIO = 8
"""Largest ratio of two values that a linear axis still shows well: with a larger one the small values are
close to its lower end."""


def stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners (x, y) of the steps through these points: each y holds until the next point's x."""
    corners: list[tuple[float, float]] = []
    for x, y in points:
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    return corners


def wide(values: Sequence[float]) -> bool:
    """Return whether the values are positive and their range needs a logarithmic axis."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > _WIDE_RATIO
