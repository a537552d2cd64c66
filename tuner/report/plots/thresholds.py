"""Plots of the sensitivity: the winners along each price and each bound, and today's value."""

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from serving.report_pages import formatting, svg
from serving.report_pages.plots import Plot, PlotTable
from serving.report_pages.svg import AxisScale, labelled_ticks
from tuner import notation
from tuner.report.schema import BoundChange, PriceChange, Report, Segment
from tuner.report.text import phrases

_HEIGHT = 96
_TOP, _BAR = 26, 22
"""Top and height of the strip in the drawing."""
_LETTER = 7
"""Approximate width of a letter."""
_SPREAD = 4.0
"""Factor by which the scale extends beyond today's value and the thresholds."""


def price(report: Report, change: PriceChange) -> Plot:
    """Return the winners along a price."""
    return _strip(
        report,
        change.segments,
        change.today,
        f"The price of {phrases.PRICES[change.price]} per hour",
        formatting.number,
    )


def bound(report: Report, change: BoundChange) -> Plot:
    """Return the winners along the bound of a constraint."""
    constraint = report.question.constraints[change.constraint]
    title = f"The {notation.metric(constraint)} allowed"
    return _strip(report, change.segments, change.today, title, notation.writer(constraint))


def _strip(
    report: Report, segments: Sequence[Segment], today: float, title: str, write: Callable[[float], str]
) -> Plot:
    """Return a bar with a part for each segment, and a line at today's value.

    The scale is logarithmic: the first segment, which starts at 0, and the last, which has no end, extend to
    the ends of the scale.
    """
    thresholds = [segment.start for segment in segments if segment.start > 0]
    positive = [value for value in [*thresholds, today] if value > 0] or [1.0]
    x = AxisScale(min(positive) / _SPREAD, max(positive) * _SPREAD, 12, svg.WIDTH - 12, log=True)
    parts: list[Markup] = []
    for i, segment in enumerate(segments):
        start, end = x.at(segment.start), x.at(segment.end if segment.end is not None else math.inf)
        css = _css(report, segment, i)
        box = {"x": start, "y": _TOP, "width": max(1.0, end - start), "height": _BAR}
        parts.append(svg.element("rect", {"class": f"strip {css}", **box, "data-tip": _tip(segment, write)}))
        name = _name(report, segment)
        if end - start > _LETTER * len(name):
            parts.append(svg.text((start + end) / 2, _TOP + 15, name, f"inside {css}"))
    at = x.at(today)
    anchor = "end" if at > svg.WIDTH / 2 else "start"
    parts += [
        svg.element("line", {"class": "today", "x1": at, "x2": at, "y1": _TOP - 8, "y2": _TOP + _BAR + 8}),
        svg.text(at + (-4 if anchor == "end" else 4), _TOP - 8, f"today {write(today)}", f"tick {anchor}"),
    ]
    for tick in labelled_ticks(x, write):
        parts.append(
            svg.text(min(max(tick.at, 24), svg.WIDTH - 24), _TOP + _BAR + 22, tick.text, "tick middle")
        )
    parts.append(svg.text(svg.WIDTH / 2, _HEIGHT - 6, title, "label middle"))
    rows = tuple(
        (_span(segment, write), _winner(segment), _better(report, segment, write)) for segment in segments
    )
    picture = svg.picture(f"{title}: who wins", *parts, height=_HEIGHT)
    return Plot(
        f"{title}: who wins", (picture,), PlotTable((title, "wins", "against the recommended spec"), rows)
    )


def _name(report: Report, segment: Segment) -> str:
    """Return the label of a segment: its winner, by the trial that measured it."""
    if not segment.trial:
        return "none"
    if _is_recommended(report, segment):
        return "recommended"
    return next((f"trial {row.number}" for row in report.trials if row.name == segment.trial), "")


def _css(report: Report, segment: Segment, i: int) -> str:
    """Return the CSS class of segment `i`; those of other specs alternate, to tell neighbours apart."""
    if not segment.trial:
        return "none"
    return "rec" if _is_recommended(report, segment) else f"other{i % 2}"


def _is_recommended(report: Report, segment: Segment) -> bool:
    choice = report.answer.choice
    return bool(segment.trial) and choice is not None and segment.trial in choice.trials


def _span(segment: Segment, write: Callable[[float], str]) -> str:
    """Return `below 0.1`, `0.1 to 0.4`, `0.4 and more`, or `any`."""
    if segment.end is None:
        return f"{write(segment.start)} and more" if segment.start > 0 else "any"
    if segment.start == 0:
        return f"below {write(segment.end)}"
    return f"{write(segment.start)} to {write(segment.end)}"


def _better(report: Report, segment: Segment, write: Callable[[float], str]) -> str:
    """Return by how much the winner of a segment is better than the recommended spec."""
    if _is_recommended(report, segment):
        return formatting.DASH
    if segment.factor is None:
        return "the recommended spec is not allowed there" if segment.trial else formatting.DASH
    return f"{formatting.percent(segment.factor - 1)} better at {write(segment.at)}"


def _tip(segment: Segment, write: Callable[[float], str]) -> str:
    return f"{_span(segment, write)}: {_winner(segment)}"


def _winner(segment: Segment) -> str:
    return notation.spec(segment.settings) if segment.trial else "no measured spec"
