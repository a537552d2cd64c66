"""Plots of cost per hour against latency or throughput, with the Pareto front."""

from collections.abc import Callable

from markupsafe import Markup

from serving.report_pages import formatting, svg
from serving.report_pages.plots import Plot, PlotTable, stairs, wide
from serving.report_pages.svg import AxisScale, labelled_ticks
from tuner import notation
from tuner.report.plots import roles
from tuner.report.schema import Front, Report

_ABOVE = ("no", "unsure", "ok", "run", "cur", "rec")
"""Roles in the order of drawing: the marks of the answer's specs are on top."""


def front(report: Report, data: Front) -> Plot:
    """Return cost per hour against another measure, with the Pareto front."""
    write = formatting.number if data.measure == "throughput" else formatting.duration
    name = (
        "requests per second"
        if data.measure == "throughput"
        else f"p{data.percentile} {notation.METRICS[data.measure]}"
    )
    ys = [point.y.value for point in data.points]
    x = AxisScale.around([point.x for point in data.points], svg.LEFT, svg.WIDTH - svg.RIGHT)
    y = AxisScale.around(ys, svg.HEIGHT - svg.BOTTOM, svg.TOP, log=wide(ys))
    parts = [
        svg.frame(
            labelled_ticks(x, formatting.number), labelled_ticks(y, write), "cost per hour of a replica", name
        )
    ]
    parts += _bound_lines(report, data, y)
    best = sorted((p for p in data.points if p.front), key=lambda p: p.x)
    parts.append(svg.line(stairs([(x.at(p.x), y.at(p.y.value)) for p in best]), "front"))
    kinds: set[str] = set()  # the roles in the plot
    names = roles.names(report)
    points = sorted(data.points, key=lambda p: _ABOVE.index(roles.role(report, p.spec, p.trial, p.meets)))
    for p in points:
        css = roles.role(report, p.spec, p.trial, p.meets)
        kinds.add(css)
        spec, interval = names.get(p.trial, p.trial), notation.interval(p.y, write)
        tip = f"{spec}: {name} {interval}, {formatting.number(p.x)} per hour"
        parts.append(svg.whisker(x.at(p.x), y.at(p.y.low), y.at(p.y.high), f"whisker {css}"))
        parts.append(roles.glyph(css, x.at(p.x), y.at(p.y.value), tip))
    title = f"Cost and {name}"
    return Plot(
        title, (svg.picture(title, *parts),), _front_table(report, data, name, write), roles.legend(kinds)
    )


def _front_table(report: Report, data: Front, name: str, write: Callable[[float], str]) -> PlotTable:
    names = roles.names(report)
    rows = [
        (
            names.get(p.trial, p.trial),
            formatting.number(p.x),
            notation.interval(p.y, write),
            "yes" if p.front else "no",
        )
        for p in sorted(data.points, key=lambda p: (p.x, p.y.value))
    ]
    return PlotTable(("spec", "cost per hour", name, "on the front"), tuple(rows))


def _bound_lines(report: Report, data: Front, y: AxisScale) -> list[Markup]:
    bounds = [
        b.bound
        for b in report.question.constraints
        if (b.metric, b.percentile) == (data.measure, data.percentile)
    ]
    return [roles.bound_line(y, bound) for bound in bounds]
