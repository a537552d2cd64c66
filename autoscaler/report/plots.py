"""The plots of a report: load and forecast, replicas of each policy, and cost against violations. Pure."""

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup

from autoscaler.report import sentences
from autoscaler.report.schema import PERFECT_KNOWLEDGE, PolicyRow, SimulationReport, Timeline
from autoscaler.simulate.comparison import TimelineColumn
from serving.report_pages import formatting, svg
from serving.report_pages.plots import Plot, PlotTable, stairs
from serving.report_pages.svg import AxisScale, Tick, labelled_ticks

_TIMELINE_WIDTH = 1040
"""Units of about a pixel: the width of the page."""
_LATE_HEIGHT = 110
"""Height of the strip of late requests, in the same units."""
_STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)
"""Seconds between ticks of time."""
_MAX_TICKS = 9
"""Most intervals between ticks of time."""
_MAX_ROWS = 60
"""Most rows of the table below a timeline; the JSON has all."""
_LEAST_PERCENT = 0.01
"""Lower end of the axis of violations, in percent."""
_LETTER_WIDTH = 6.2
"""Approximate width of a letter of a label."""
_LETTER_ASCENT, _LETTER_DESCENT = 10, 2
"""Height of a label above and below its baseline."""
_DOT_RADIUS = 6
"""Half of the side of the square that labels leave free around a dot."""
_MAX_CHANGES = 500
"""Most rows of the table of changes; the JSON has all."""


def load(report: SimulationReport) -> Plot:
    """Return the plot of the load and of the forecast that sized the replicas."""
    columns = report.tracks[0].columns
    uppers = [column.upper for column in columns if column.upper is not None]
    x = _time(report)
    y = AxisScale.around(
        [0.0, *(moment.rate for moment in report.moments), *uppers],
        svg.HEIGHT - svg.BOTTOM,
        svg.TOP,
        zero=True,
    )
    label = f"{report.service.unit} per second"
    parts = [_frame(report, x, y, label)]
    parts += [svg.area(points, "range") for points in _bands(report, x, y)]
    parts.append(
        svg.line([(_middle(report, x, i), y.at(m.rate)) for i, m in enumerate(report.moments)], "course load")
    )
    parts.append(_scoring_start(report, x, svg.HEIGHT - svg.BOTTOM))
    parts += _hover_areas(report, columns, x, svg.HEIGHT - svg.BOTTOM)
    title = "Load, and the highest load that was expected within a start"
    rows = tuple(
        (
            sentences.format_time(report.moments[i].time),
            formatting.number(report.moments[i].rate),
            *_band(columns[i]),
        )
        for i in _table_indices(report)
    )
    return Plot(
        title,
        (svg.picture(title, *parts, width=_TIMELINE_WIDTH),),
        PlotTable(("UTC", label, "10 % quantile", "median", "sized on"), rows),
        (("load", "load"), ("range", "forecast, from its 10 % quantile to what is sized on")),
    )


def replicas(report: SimulationReport, timeline: Timeline) -> Plot:
    """Return the plot of the replicas of one policy, with the late requests below."""
    x = _time(report)
    highest = max(max(c.desired, c.ready) for c in timeline.columns)
    y = AxisScale.around(
        [0.0, float(highest), *(float(m.needed) for m in report.moments)],
        svg.HEIGHT - svg.BOTTOM,
        svg.TOP,
        zero=True,
    )
    bottom = y.at(0.0)
    needed = _course(report, x, y, [moment.needed for moment in report.moments])
    desired = _course(report, x, y, [column.desired for column in timeline.columns])
    ready = _course(report, x, y, [column.ready for column in timeline.columns])
    with_reasons = report.row(timeline.name).ours  # the reasons of all policies would double the page's size
    parts = [
        svg.area([(needed[0][0], bottom), *needed, (needed[-1][0], bottom)], "needed"),
        _frame(report, x, y, "replicas"),
        svg.line(ready, "course ready"),
        svg.line(desired, "course desired"),
        _scoring_start(report, x, svg.HEIGHT - svg.BOTTOM),
        *(_hover_areas(report, timeline.columns, x, svg.HEIGHT - svg.BOTTOM) if with_reasons else ()),
    ]
    title = f"Replicas with {timeline.name}"
    return Plot(
        title,
        (svg.picture(title, *parts, width=_TIMELINE_WIDTH), _late(report, timeline, x)),
        PlotTable(
            ("UTC", "needed", "desired", "ready", "waited too long", "reason"), tuple(_rows(report, timeline))
        ),
        (
            ("needed", "needed, by perfect knowledge"),
            ("desired", "desired"),
            ("ready", "ready"),
            ("late", "requests that waited too long"),
        ),
    )


def tradeoff(report: SimulationReport) -> Plot:
    """Return the plot of cost against violations of every policy."""
    x = AxisScale.around([row.replica_hours for row in report.rows], svg.LEFT, svg.WIDTH - svg.RIGHT)
    top = max(*(row.violations for row in report.rows), 10 * _LEAST_PERCENT)
    # Room below the lowest and above the highest dot.
    y = AxisScale(_LEAST_PERCENT / 1.3, top * 1.5, svg.HEIGHT - svg.BOTTOM, svg.TOP, log=True)
    frame = svg.frame(
        labelled_ticks(x, formatting.number),
        _percent_ticks(y),
        "replica-hours",
        "requests that wait too long",
    )
    parts = [frame]
    ours = sorted((row for row in report.rows if row.ours), key=lambda row: row.replica_hours)
    if len(ours) > 1:
        parts.append(svg.line([_position(x, y, row) for row in ours], "risks"))
    parts += _labels(report, x, y)
    parts += [_dot(report, row, x, y) for row in report.rows]
    title = "Cost against violations"
    rows = tuple(tuple(cell for cell, _ in cells(row)) for row in report.rows)
    legend = (
        ("rec", "our policy, as asked"),
        ("run", "our policy at other risks"),
        ("unsure", "others"),
        ("ok", "perfect knowledge"),
    )
    return Plot(title, (svg.picture(title, *parts),), PlotTable(COLUMNS, rows), legend)


COLUMNS = (
    "policy",
    "waited too long",
    "minutes violated",
    "99 % waited at most",
    "replica-hours",
    "over perfect",
    "found no replica",
    "changes an hour",
    "reversals an hour",
)
"""Headers of the table of policies."""


def cells(row: PolicyRow) -> list[tuple[str, float | str]]:
    """Return the cells of a policy, each with its sort key."""
    return [
        (row.name, row.name),
        (sentences.percent(row.violations), row.violations),
        (sentences.percent(row.windows), row.windows),
        (formatting.duration(row.p99), row.p99),
        (formatting.number(row.replica_hours), row.replica_hours),
        (f"{row.over_oracle:.3f}", row.over_oracle),
        (sentences.percent(row.cold), row.cold),
        (formatting.number(row.actions), row.actions),
        (formatting.number(row.reversals), row.reversals),
    ]


def changes(report: SimulationReport) -> list[list[tuple[str, float | str]]]:
    """Return the rows of the table of changes, each cell with its sort key."""
    return [
        [
            (sentences.format_time(change.time), change.time),
            (f"{change.before} \u2192 {change.after}", change.after - change.before),
            (str(change.ready), change.ready),
            (formatting.number(change.rate), change.rate),
            (change.reason, change.reason),
            (change.message, change.message),
        ]
        for change in report.changes[:_MAX_CHANGES]
    ]


def _tip(report: SimulationReport, index: int, column: TimelineColumn) -> str:
    """Return the tooltip of a column."""
    moment = report.moments[index]
    band = f", {formatting.number(column.upper)} to expect" if column.upper is not None else ""
    late = f", {formatting.number(column.late)} waited too long" if column.late else ""
    return (
        f"{sentences.format_time(moment.time)} UTC: "
        f"{formatting.number(moment.rate)} {report.service.unit}/s{band}; "
        f"{column.desired} desired, {column.ready} ready, {moment.needed} needed{late}. "
        f"{': '.join(filter(None, (column.reason, column.message)))}"
    )


def _course(
    report: SimulationReport, x: AxisScale, y: AxisScale, counts: Sequence[int]
) -> list[tuple[float, float]]:
    """Return the corners of a count of each column, up to the end of the run."""
    points = [(x.at(m.time), y.at(count)) for m, count in zip(report.moments, counts, strict=True)]
    return [*stairs(points), (x.end, points[-1][1])]


def _time(report: SimulationReport) -> AxisScale:
    start = report.service.start
    return AxisScale(start, start + report.service.seconds, svg.LEFT, _TIMELINE_WIDTH - svg.RIGHT)


def _middle(report: SimulationReport, x: AxisScale, index: int) -> float:
    return x.at(report.moments[index].time + report.step / 2)


def _frame(report: SimulationReport, x: AxisScale, y: AxisScale, label: str) -> Markup:
    return svg.frame(
        _clock(report, x), labelled_ticks(y, formatting.number), "UTC", label, width=_TIMELINE_WIDTH
    )


def _clock(report: SimulationReport, x: AxisScale) -> list[Tick]:
    """Return the ticks of the time axis."""
    step = next((step for step in _STEPS if report.service.seconds / step <= _MAX_TICKS), _STEPS[-1])
    first = math.ceil(x.low / step) * step
    ticks = []
    for seconds in range(first, math.floor(x.high) + 1, step):
        time = dt.datetime.fromtimestamp(seconds, dt.UTC)
        ticks.append(Tick(x.at(seconds), f"{time:%d %b}" if seconds % 86_400 == 0 else f"{time:%H:%M}"))
    return ticks


def _scoring_start(report: SimulationReport, x: AxisScale, bottom: float) -> Markup:
    """Return the vertical line at the time at which scoring begins."""
    position = x.at(report.service.start + report.service.lead)
    ends = {"x1": position, "x2": position, "y1": svg.TOP, "y2": bottom}
    return svg.element("line", {"class": "bound", **ends})


def _bands(report: SimulationReport, x: AxisScale, y: AxisScale) -> Iterator[list[tuple[float, float]]]:
    """Yield the outline of each period that has a forecast."""
    numbered = enumerate(report.tracks[0].columns)
    for has_forecast, group in groupby(numbered, key=lambda pair: pair[1].upper is not None):
        if not has_forecast:
            continue
        period = list(group)
        upper = [(_middle(report, x, i), y.at(c.upper or 0.0)) for i, c in period]
        lower = [(_middle(report, x, i), y.at(c.lower or 0.0)) for i, c in period]
        yield [*upper, *reversed(lower)]


def _hover_areas(
    report: SimulationReport, columns: Sequence[TimelineColumn], x: AxisScale, bottom: float
) -> Iterator[Markup]:
    """Yield the area of each column, whose tooltip shows the decision."""
    for index, column in enumerate(columns):
        box = {**_across(report, x, index), "y": svg.TOP, "height": bottom - svg.TOP}
        yield svg.element("rect", {"class": "hit", **box, "data-tip": _tip(report, index, column)})


def _across(report: SimulationReport, x: AxisScale, index: int) -> dict[str, str]:
    """Return the left end and the width of a column."""
    start, end = (x.at(report.moments[index].time + offset) for offset in (0.0, report.step))
    return {"x": f"{start:.2f}", "width": f"{max(end - start, 0.1):.2f}"}


def _late(report: SimulationReport, timeline: Timeline, x: AxisScale) -> Markup:
    """Return the strip of requests that waited too long."""
    bottom = _LATE_HEIGHT - svg.BOTTOM
    highest = max(column.late for column in timeline.columns)
    y = AxisScale(0.0, max(highest, 1.0), bottom, svg.TOP)
    ticks = [Tick(y.at(0.0), "0"), Tick(y.at(y.high), formatting.number(y.high))]
    frame = svg.frame(_clock(report, x), ticks, "UTC", "late", height=_LATE_HEIGHT, width=_TIMELINE_WIDTH)
    parts = [frame]
    for index, column in enumerate(timeline.columns):
        if column.late > 0:
            top = min(y.at(column.late), bottom - 1.5)  # few late requests are still visible
            box = {**_across(report, x, index), "y": top, "height": bottom - top}
            parts.append(
                svg.element("rect", {"class": "late", **box, "data-tip": _tip(report, index, column)})
            )
    title = f"Requests that waited too long with {timeline.name}"
    return svg.picture(title, *parts, width=_TIMELINE_WIDTH, height=_LATE_HEIGHT)


def _table_indices(report: SimulationReport) -> range:
    """Return the indices of the moments in the table below a timeline, evenly spaced."""
    return range(0, len(report.moments), math.ceil(len(report.moments) / _MAX_ROWS))


def _rows(report: SimulationReport, timeline: Timeline) -> Iterator[tuple[str, ...]]:
    for i in _table_indices(report):
        moment, column = report.moments[i], timeline.columns[i]
        yield (
            sentences.format_time(moment.time),
            str(moment.needed),
            str(column.desired),
            str(column.ready),
            formatting.number(column.late),
            column.reason,
        )


def _band(column: TimelineColumn) -> tuple[str, str, str]:
    """Return the cells of a column's forecast: lower quantile, median and upper quantile."""
    low, middle, high = (
        formatting.DASH if value is None else formatting.number(value)
        for value in (column.lower, column.median, column.upper)
    )
    return low, middle, high


def _percent_ticks(y: AxisScale) -> list[Tick]:
    """Return the ticks of the axis of violations; its lower end stands for all lower values."""
    # `labelled_ticks` skips ticks with a repeated label, but never the first, the lower end of the axis.
    return [
        Tick(tick.at, f"\u2264 {tick.text}" if math.isclose(value, _LEAST_PERCENT) else tick.text)
        for tick, value in zip(labelled_ticks(y, sentences.percent), y.ticks(), strict=False)
    ]


def _position(x: AxisScale, y: AxisScale, row: PolicyRow) -> tuple[float, float]:
    """Return the position of a policy's dot."""
    return x.at(row.replica_hours), y.at(max(row.violations, _LEAST_PERCENT))


def _dot(report: SimulationReport, row: PolicyRow, x: AxisScale, y: AxisScale) -> Markup:
    """Return the dot of a policy; the CSS classes are those of the legend of `tradeoff`."""
    if row.name == PERFECT_KNOWLEDGE:
        css = "ok"
    elif row.name == report.main:
        css = "rec"
    elif row.ours:
        css = "run"
    else:
        css = "unsure"
    tooltip = (
        f"{row.name}: {sentences.percent(row.violations)} waited too long, "
        f"{formatting.number(row.replica_hours)} replica-hours"
    )
    return _glyph(css, *_position(x, y, row), tooltip)


class _Box(NamedTuple):
    """A rectangle, with y growing downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "_Box") -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def _labels(report: SimulationReport, x: AxisScale, y: AxisScale) -> list[Markup]:
    """Return the labels of the dots that have room for one.

    The policy of the report and perfect knowledge come first, then the Pareto front, then the others.
    """
    dots = [_position(x, y, row) for row in report.rows]
    occupied = [
        _Box(dot_x - _DOT_RADIUS, dot_y - _DOT_RADIUS, dot_x + _DOT_RADIUS, dot_y + _DOT_RADIUS)
        for dot_x, dot_y in dots
    ]
    order = sorted(
        report.rows,
        key=lambda row: (row.name not in (report.main, PERFECT_KNOWLEDGE), not row.is_pareto_optimal),
    )
    labels = []
    for row in order:
        dot_x, dot_y = _position(x, y, row)
        width = _LETTER_WIDTH * len(row.name)
        places = (  # left end and baseline of the label: right of the dot, left of it, above it, below it
            (dot_x + 9, dot_y + 4),
            (dot_x - 9 - width, dot_y + 4),
            (dot_x - width / 2, dot_y - 10),
            (dot_x - width / 2, dot_y + 19),
        )
        for left, baseline in places:
            box = _Box(left, baseline - _LETTER_ASCENT, left + width, baseline + _LETTER_DESCENT)
            is_inside = box.left >= svg.LEFT and box.right <= svg.WIDTH
            if is_inside and not any(box.overlaps(other) for other in occupied):
                occupied.append(box)
                labels.append(svg.text(left, baseline, row.name, "note"))
                break
    return labels


def _glyph(css: str, x: float, y: float, tooltip: str) -> Markup:
    """Return the shape of a CSS class at a point; shapes differ, as colours alone are not enough."""
    shapes = {
        "rec": f"M{x:.1f} {y - 8:.1f}l7 8l-7 8l-7 -8z",
        "run": f"M{x:.1f} {y - 7:.1f}l6.5 11.5h-13z",
    }
    if css in shapes:
        return svg.element("path", {"class": f"mark {css}", "d": shapes[css], "data-tip": tooltip})
    return svg.dot(x, y, f"mark {css}", tooltip)
