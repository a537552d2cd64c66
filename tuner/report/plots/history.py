"""Plots of the search: the answer's specs, the objective of each trial, the expected regret."""

import math

from markupsafe import Markup

from serving.report_pages import formatting, svg
from serving.report_pages.plots import Plot, PlotTable, stairs, wide
from serving.report_pages.svg import AxisScale, Tick, labelled_ticks
from serving.resources.tuning.trial import Estimate
from tuner import notation
from tuner.report.plots import roles
from tuner.report.schema import Report, TrialRow
from tuner.report.text import measure, phrases

_BAR_HEIGHT = 46
"""Height of a bar of `lineup` with its text."""
_MOST_TICKS = 10


def steps(report: Report) -> Plot | None:
    """Return the objective of each trial, and the best so far of those that may meet the constraints."""
    shown = measure.of(report.question)
    best_so_far = [
        (step.trial, value)
        for step in report.steps
        if step.best is not None and (value := shown.shown(step.best)) is not None
    ]
    points = [
        (row, estimate)
        for row in report.trials
        if row.objective is not None and (estimate := shown.estimate(row.objective)) is not None
    ]
    if not points:
        return None
    values = [estimate.value for _, estimate in points] + [value for _, value in best_so_far]
    y = AxisScale.around(values, svg.HEIGHT - svg.BOTTOM, svg.TOP, log=wide(values))
    last = max(2, *(row.number for row in report.trials))
    x = AxisScale(0.5, last + 0.5, svg.LEFT, svg.WIDTH - svg.RIGHT)
    parts = [svg.frame(_trial_ticks(x, last), labelled_ticks(y, shown.write), "trial", shown.label)]
    parts.append(svg.line(stairs([(x.at(trial), y.at(value)) for trial, value in best_so_far]), "front"))
    kinds: set[str] = set()  # the roles in the plot
    for row, estimate in points:
        css = roles.role(report, row.spec, row.name, row.meets)
        kinds.add(css)
        interval = notation.interval(estimate, shown.write)
        tip = f"trial {row.number}, {notation.spec(row.settings)}: {interval}; {phrases.ended(row)}"
        parts.append(svg.whisker(x.at(row.number), y.at(estimate.low), y.at(estimate.high), f"whisker {css}"))
        parts.append(roles.glyph(css, x.at(row.number), y.at(estimate.value), tip))
    parts += [_failed(row, x) for row in report.trials if row.objective is None and row.reason]
    title = f"Progress of the search: {shown.label} by trial, and the best so far"
    return Plot(title, (svg.picture(title, *parts),), _steps_table(report, shown), roles.legend(kinds))


def _failed(row: TrialRow, x: AxisScale) -> Markup:
    """Return the mark of a trial without an objective: a short line on the axis of the trials."""
    path = f"M{x.at(row.number):.1f} {svg.HEIGHT - svg.BOTTOM:.1f}v-7"
    tip = f"trial {row.number}, {notation.spec(row.settings)}: {phrases.ended(row)}"
    return svg.element("path", {"class": "mark no", "d": path, "data-tip": tip})


def _steps_table(report: Report, shown: measure.ObjectiveMeasure) -> PlotTable:
    def write(value: float | None) -> str:
        number = shown.shown(value) if value is not None else None
        return formatting.DASH if number is None else shown.write(number)

    has_regrets = any(step.expected_regret is not None for step in report.steps)
    if not has_regrets:
        rows = tuple((str(step.trial), write(step.best)) for step in report.steps)
        return PlotTable(("trial", "best so far"), rows)
    rows_with_regret = tuple(
        (
            str(step.trial),
            write(step.best),
            formatting.DASH if step.expected_regret is None else formatting.percent(step.expected_regret),
        )
        for step in report.steps
    )
    return PlotTable(("trial", "best so far", "expected regret"), rows_with_regret)


def _trial_ticks(x: AxisScale, last: int) -> list[Tick]:
    """Return at most _MOST_TICKS ticks at evenly spaced numbers of trials up to `last`."""
    step = math.ceil(last / _MOST_TICKS)
    return [Tick(x.at(number), str(number)) for number in range(step, last + 1, step)]


def expected_regret(report: Report) -> Plot | None:
    """Return the expected regret after each trial."""
    regrets = [
        (step.trial, step.expected_regret) for step in report.steps if step.expected_regret is not None
    ]
    if len(regrets) < 2:
        return None
    last = max(2, *(step.trial for step in report.steps))
    x = AxisScale(0.5, last + 0.5, svg.LEFT, svg.WIDTH - svg.RIGHT)
    y = AxisScale.around(
        [regret for _, regret in regrets] + [0.0], svg.HEIGHT - svg.BOTTOM, svg.TOP, zero=True
    )
    title = "Expected regret, by the trials of this experiment alone"
    parts = [
        svg.frame(_trial_ticks(x, last), labelled_ticks(y, formatting.percent), "trial", "expected regret")
    ]
    parts.append(svg.line([(x.at(trial), y.at(regret)) for trial, regret in regrets], "course rec"))
    parts += [
        svg.dot(
            x.at(trial), y.at(regret), "mark rec", f"after trial {trial}: {formatting.percent(regret)}", 3.5
        )
        for trial, regret in regrets
    ]
    rows = tuple((str(trial), formatting.percent(regret)) for trial, regret in regrets)
    return Plot(title, (svg.picture(title, *parts),), PlotTable(("after trial", "expected regret"), rows))


def lineup(report: Report) -> Plot | None:
    """Return bars of the objective of the answer's specs, with their intervals."""
    shown = measure.of(report.question)
    answer = report.answer
    choices = (("rec", answer.choice), ("run", answer.runner_up), ("cur", answer.current))
    rows = [
        (css, choice, estimate)
        for css, choice in choices
        if choice and choice.objective and (estimate := shown.estimate(choice.objective)) is not None
    ]
    if len(rows) < 2:
        return None
    ends = [end for _, _, e in rows for end in (e.value, e.high) if math.isfinite(end)]
    x = AxisScale(0.0, max(ends) * 1.04, 12, svg.WIDTH - svg.RIGHT)
    parts: list[Markup] = []
    for i, (css, choice, estimate) in enumerate(rows):
        name, interval = roles.LEGEND[css], notation.interval(estimate, shown.write)
        title = f"{name}: {shown.write(estimate.value)}"
        tip = f"{name}, {notation.spec(choice.settings)}: {interval}"
        parts += _bar(x, 10 + i * _BAR_HEIGHT, css, estimate, title=title, tip=tip)
    plot_title = f"{shown.label[0].upper()}{shown.label[1:]}, with 95 % intervals"
    table = tuple(
        (roles.LEGEND[css], notation.spec(c.settings), notation.interval(e, shown.write))
        for css, c, e in rows
    )
    return Plot(
        plot_title,
        (svg.picture(plot_title, *parts, height=10 + _BAR_HEIGHT * len(rows)),),
        PlotTable(("", "spec", shown.label), table),
    )


def _bar(x: AxisScale, top: float, css: str, estimate: Estimate, *, title: str, tip: str) -> list[Markup]:
    """Return a bar with its interval, the title above the bar, and a tooltip."""
    box = {"x": x.start, "y": top + 14, "width": x.at(estimate.value) - x.start, "height": 16}
    ends = {"x1": x.at(estimate.low), "x2": x.at(estimate.high), "y1": top + 22, "y2": top + 22}
    return [
        svg.text(x.start, top + 8, title, "tick strong"),
        svg.element("rect", {"class": f"bar {css}", **box, "data-tip": tip}),
        svg.element("line", {"class": "span", **ends}),
    ]
