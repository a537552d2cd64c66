"""Draws SVG: elements, scales with round ticks, the frame of a plot. Pure; independent of reports.

MarkupSafe escapes all content. Colours are CSS classes, as the page has light, dark and print styles.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH = 440
"""Width of a plot, in units of about a pixel on a phone held upright, so that its text is readable there."""
HEIGHT = 280
LEFT, RIGHT, TOP, BOTTOM = 68, 14, 12, 46
"""Margins around the plotted area, in the same units; the ticks and labels of the axes are in them."""
_DECADES = 2.0
"""Powers of ten on a logarithmic axis beyond which it has ticks at powers of ten only."""
_TICKS = 5
"""Intended number of ticks of a linear axis."""
_MARGIN = 0.06
"""Share of the values' range that is free at each end of an axis, so that no dot is cut off."""
_LEAST_FACTOR = 1.05
"""Least factor between the end of a logarithmic axis and the nearest value, also if all values are equal."""
_ROUNDING = 1e-9
"""Relative error of floats by which a tick at the end of an axis may be outside it."""


def element(tag: str, attributes: Mapping[str, object] | None = None, *children: object) -> Markup:
    """Return an element without the attributes that are None; children are escaped."""
    pairs = Markup("").join(
        Markup(' {}="{}"').format(name, _attribute(value))
        for name, value in (attributes or {}).items()
        if value is not None
    )
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{}{}>{}</{}>").format(Markup(tag), pairs, inner, Markup(tag))  # noqa: S704 tags are ours


def _attribute(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class AxisScale:
    """Maps the values of an axis to positions in the drawing, along x or y."""

    low: float
    high: float
    start: float
    """Position of `low`, in the units of WIDTH."""
    end: float
    """Position of `high`; less than `start` on a y axis, as y grows downwards."""
    log: bool = False

    @classmethod
    def around(
        cls, values: Sequence[float], start: float, end: float, *, log: bool = False, zero: bool = False
    ) -> "AxisScale":
        """Return a scale of all finite values with a margin; with `zero` a linear scale of non-negative
        values begins at 0.

        A logarithmic scale ignores values that are not positive.
        """
        finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)] or [1.0]
        low, high = min(finite), max(finite)
        if log:
            factor = max((high / low) ** _MARGIN, _LEAST_FACTOR)
            return cls(low / factor, high * factor, start, end, log=True)
        margin = (high - low) * _MARGIN or abs(high) * 0.1 or 1.0  # equal values have no range
        begins_at_zero = zero and low >= 0
        return cls(0.0 if begins_at_zero else low - margin, high + margin, start, end)

    def at(self, value: float) -> float:
        """Return the position of a value; values outside the scale are at its ends."""
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round values on the scale.

        On a logarithmic one these are the powers of ten, on a short one also 2 and 5 times each; if fewer
        than two are on the scale, multiples of a round step.
        """
        if not self.log:
            return _round_steps(self.low, self.high)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1,) if math.log10(self.high / self.low) > _DECADES else (1, 2, 5)
        candidates = [factor * 10.0**decade for decade in decades for factor in factors]
        inside = [tick for tick in candidates if self.low <= tick <= self.high]
        return inside if len(inside) > 1 else _round_steps(self.low, self.high)


def _round_steps(low: float, high: float) -> list[float]:
    """Return the multiples of a round step between `low` and `high`, about _TICKS of them."""
    least_step = (high - low) / _TICKS
    decade = 10.0 ** math.floor(math.log10(least_step))
    steps = (factor * decade for factor in (1, 2, 2.5, 5, 10))
    step = next(step for step in steps if step >= least_step * (1 - _ROUNDING))
    first = math.ceil(low / step - _ROUNDING)
    last = math.floor(high / step + _ROUNDING)
    return [i * step for i in range(first, last + 1)]


@dataclass(frozen=True)
class Tick:
    """A position on an axis and its label."""

    at: float
    text: str


def labelled_ticks(scale: AxisScale, write: Callable[[float], str]) -> list[Tick]:
    """Return the ticks of a scale with labels by `write`; of ticks with the same label only the first."""
    by_label: dict[str, Tick] = {}
    for value in scale.ticks():
        label = write(value)
        by_label.setdefault(label, Tick(scale.at(value), label))
    return list(by_label.values())


def frame(
    x: Sequence[Tick],
    y: Sequence[Tick],
    x_label: str,
    y_label: str,
    *,
    grid: bool = True,
    height: int = HEIGHT,
    width: int = WIDTH,
) -> Markup:
    """Return the axes of a plot with ticks and labels, and a grid line for each tick of the y axis."""
    bottom = height - BOTTOM
    parts: list[Markup] = []
    for tick in y:
        if grid:
            ends = {"x1": LEFT, "x2": width - RIGHT, "y1": tick.at, "y2": tick.at}
            parts.append(element("line", {"class": "grid", **ends}))
        parts.append(text(LEFT - 6, tick.at + 4, tick.text, "tick end"))
    for tick in x:
        parts += [
            element("line", {"class": "axis", "x1": tick.at, "x2": tick.at, "y1": bottom, "y2": bottom + 4}),
            text(tick.at, bottom + 17, tick.text, "tick middle"),
        ]
    parts.append(
        element("line", {"class": "axis", "x1": LEFT, "x2": width - RIGHT, "y1": bottom, "y2": bottom})
    )
    parts.append(text((LEFT + width - RIGHT) / 2, height - 8, x_label, "label middle"))
    middle = (TOP + bottom) / 2
    rotated = {"class": "label middle", "transform": f"translate(12 {middle:.0f}) rotate(-90)"}
    parts.append(element("text", rotated, y_label))
    return Markup("").join(parts)


def text(x: float, y: float, words: str, css: str) -> Markup:
    """Return a line of text."""
    return element("text", {"x": x, "y": y, "class": css}, words)


def picture(title: str, *parts: Markup, height: int = HEIGHT, width: int = WIDTH) -> Markup:
    """Return the SVG element of a drawing; screen readers read the title, and the table for numbers."""
    attributes = {"viewBox": f"0 0 {width} {height}", "role": "img", "aria-label": title}
    return element("svg", attributes, *parts)


def dot(x: float, y: float, css: str, tip: str, radius: float = 4.5) -> Markup:
    """Return a point with a tooltip."""
    return element("circle", {"class": css, "cx": x, "cy": y, "r": radius, "data-tip": tip})


def line(points: Sequence[tuple[float, float]], css: str) -> Markup:
    """Return a line through the points."""
    return element("polyline", {"class": css, "points": _path(points)})


def area(points: Sequence[tuple[float, float]], css: str) -> Markup:
    """Return a filled polygon."""
    return element("polygon", {"class": css, "points": _path(points)})


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def whisker(x: float, low: float, high: float, css: str) -> Markup:
    """Return the vertical line of an interval."""
    return element("line", {"class": css, "x1": x, "x2": x, "y1": low, "y2": high})
