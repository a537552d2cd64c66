"""Drawing by hand: elements, scales with round ticks, the frame of a plot. Values in, markup out; it knows no report.

Everything that is put in is escaped by MarkupSafe; colours are classes of the page, so that light, dark and print are its matter.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH = 440
"""Of a plot, in units that are about a pixel on a phone held upright, so that its text stays readable there."""
HEIGHT = 280
LEFT, RIGHT, TOP, BOTTOM = 68, 14, 12, 46
"""Margins: ticks and labels of the axes."""
_DECADES = 2.0
"""From this many powers of ten on a logarithmic axis has ticks at powers of ten only."""
_TICKS = 5


def element(tag: str, attributes: Mapping[str, object] | None = None, *children: object) -> Markup:
    """Return an element; attributes that are None are left out, numbers are written short, children are escaped."""
    given = (attributes or {}).items()
    pairs = Markup("").join(
        Markup(' {}="{}"').format(name, _written(value)) for name, value in given if value is not None
    )
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{}{}>{}</{}>").format(Markup(tag), pairs, inner, Markup(tag))  # noqa: S704 tags are ours


def _written(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Scale:
    """Where a value lies between two ends of the drawing."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def around(
        cls, values: Sequence[float], start: float, end: float, *, log: bool = False, zero: bool = False
    ) -> "Scale":
        """Return a scale that holds all values with a little room; `zero` makes a linear one begin there."""
        finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)] or [1.0]
        low, high = min(finite), max(finite)
        if log:
            room = max((high / low) ** 0.06, 1.05)
            return cls(low / room, high * room, start, end, log=True)
        room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        return cls(0.0 if zero and low >= 0 else low - room, high + room, start, end)

    def at(self, value: float) -> float:
        """Return the position; what lies outside is held at the end."""
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round values: powers of ten, or 1, 2, 5 between them."""
        if not self.log:
            return _round_steps(self.low, self.high)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        wide = math.log10(self.high / self.low) > _DECADES
        found = [m * 10.0**e for e in decades for m in ((1,) if wide else (1, 2, 5))]
        inside = [tick for tick in found if self.low <= tick <= self.high]
        return inside if len(inside) > 1 else _round_steps(self.low, self.high)


def _round_steps(low: float, high: float) -> list[float]:
    raw = (high - low) / _TICKS
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Tick:
    """A place on an axis with its name."""

    at: float
    text: str


def marks(scale: Scale, write: Callable[[float], str]) -> list[Tick]:
    """Return the ticks of a scale; of those that would be written alike the first."""
    seen: dict[str, Tick] = {}
    for value in scale.ticks():
        text = write(value)
        seen.setdefault(text, Tick(scale.at(value), text))
    return list(seen.values())


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
    """Return grid lines, ticks and labels of a plot, by default of the usual size."""
    bottom = height - BOTTOM
    parts: list[Markup] = []
    for tick in y:
        if grid:
            across = {"x1": LEFT, "x2": width - RIGHT, "y1": tick.at, "y2": tick.at}
            parts.append(element("line", {"class": "grid", **across}))
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
    turned = {"class": "label middle", "transform": f"translate(12 {middle:.0f}) rotate(-90)"}
    parts.append(element("text", turned, y_label))
    return Markup("").join(parts)


def text(x: float, y: float, words: str, css: str) -> Markup:
    """Return a line of text."""
    return element("text", {"x": x, "y": y, "class": css}, words)


def picture(title: str, *parts: Markup, height: int = HEIGHT, width: int = WIDTH) -> Markup:
    """Return the whole drawing; a screen reader says its title, and finds the numbers in the table that goes with it."""
    attributes = {"viewBox": f"0 0 {width} {height}", "role": "img", "aria-label": title}
    return element("svg", attributes, *parts)


def dot(x: float, y: float, css: str, tip: str, radius: float = 4.5) -> Markup:
    """Return a point that tells its values when pointed at."""
    return element("circle", {"class": css, "cx": x, "cy": y, "r": radius, "data-tip": tip})


def line(points: Sequence[tuple[float, float]], css: str) -> Markup:
    """Return a line through points."""
    return element("polyline", {"class": css, "points": _path(points)})


def area(points: Sequence[tuple[float, float]], css: str) -> Markup:
    """Return a filled shape."""
    return element("polygon", {"class": css, "points": _path(points)})


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def whisker(x: float, low: float, high: float, css: str) -> Markup:
    """Return an upright interval."""
    return element("line", {"class": css, "x1": x, "x2": x, "y1": low, "y2": high})
