"""The plot of latency over throughput: the windows of the answer's specs and their curves."""

from markupsafe import Markup

from serving.report_pages import formatting, svg
from serving.report_pages.plots import Plot, PlotTable, wide
from serving.report_pages.svg import AxisScale, labelled_ticks
from serving.resources.tuning.trial import Estimate, LatencyAt, Window
from tuner import notation
from tuner.report.plots import roles
from tuner.report.schema import Course, Report
from tuner.report.text import phrases


def load(report: Report) -> Plot | None:
    """Return latency over throughput of the answer's specs: each window and the curve of the last trial."""
    courses = {css: course for css, course in _named(report) if len(course.points) > 1}
    if not courses:
        return None
    windows = {css: _windows(report, course) for css, course in courses.items()}
    first = next(iter(courses.values()))
    # All curves of a report are of the same latency; of several bounds on it the first one is shown.
    shown_latency = (first.metric, first.percentile)
    bounds = [b.bound for b in report.question.constraints if (b.metric, b.percentile) == shown_latency][:1]
    points = [
        (window.throughput.value, latency.value) for pairs in windows.values() for window, latency in pairs
    ]
    points += [(p.throughput.value, p.latency.value) for course in courses.values() for p in course.points]
    ys = [latency for _, latency in points] + bounds
    x = AxisScale.around([rate for rate, _ in points], svg.LEFT, svg.WIDTH - svg.RIGHT, zero=True)
    y = AxisScale.around(ys, svg.HEIGHT - svg.BOTTOM, svg.TOP, log=wide(ys))
    name = f"p{first.percentile} {notation.METRICS[first.metric]}"
    parts = [
        svg.frame(
            labelled_ticks(x, formatting.number),
            labelled_ticks(y, formatting.duration),
            "requests per second",
            name,
        )
    ]
    parts += [roles.bound_line(y, bound) for bound in bounds]

    def tip(css: str, window: Window, latency: LatencyAt) -> str:
        level, rate = phrases.level(report.question, window.level), formatting.number(window.throughput.value)
        interval = notation.interval(_estimate(latency), formatting.duration)
        return f"{roles.LEGEND[css]}, {level}: {rate} requests/s, {name} {interval}"

    for css, course in courses.items():
        line = [(x.at(p.throughput.value), y.at(p.latency.value)) for p in course.points]
        parts.append(svg.line(line, f"course {css}"))
        parts += [mark for pair in windows[css] for mark in _marks(pair, x, y, css, tip(css, *pair))]
    title = f"Load and {name}: each window, and the curve of each trial"
    return Plot(
        title, (svg.picture(title, *parts),), _load_table(report, windows, name), roles.legend(set(courses))
    )


def _marks(pair: tuple[Window, LatencyAt], x: AxisScale, y: AxisScale, css: str, tip: str) -> list[Markup]:
    window, latency = pair
    at = x.at(window.throughput.value)
    return [
        svg.whisker(at, y.at(latency.low), y.at(latency.high), f"whisker {css}"),
        svg.dot(at, y.at(latency.value), f"mark {css}", tip, 3.5),
    ]


def _named(report: Report) -> list[tuple[str, Course]]:
    """Return the curves of the answer's specs, each with the role of its spec."""
    answer = report.answer
    choices = (("cur", answer.current), ("run", answer.runner_up), ("rec", answer.choice))
    return [
        (css, course)
        for css, choice in choices
        for course in report.courses
        if choice and course.trial in choice.trials
    ]


def _windows(report: Report, course: Course) -> list[tuple[Window, LatencyAt]]:
    """Return the windows of a curve's trial by load, each with the latency of the curve."""
    row = next(row for row in report.trials if row.name == course.trial)
    return [
        (window, latency)
        for window in sorted(row.windows, key=lambda window: window.level)
        for latency in window.latencies
        if (latency.metric, latency.percentile) == (course.metric, course.percentile)
    ]


def _estimate(latency: LatencyAt) -> Estimate:
    return Estimate(value=latency.value, low=latency.low, high=latency.high)


def _load_table(report: Report, lines: dict[str, list[tuple[Window, LatencyAt]]], name: str) -> PlotTable:
    rows = [
        (
            roles.LEGEND[css],
            phrases.level(report.question, w.level),
            notation.interval(w.throughput, formatting.number),
            notation.interval(_estimate(v), formatting.duration),
        )
        for css, points in lines.items()
        for w, v in points
    ]
    return PlotTable(("spec", "load", "requests per second", name), tuple(rows))
