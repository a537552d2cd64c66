"""The report as one self-contained HTML page: no network, no fonts, no third-party scripts.

Jinja and MarkupSafe escape every text of the report. The page works from a file and without its script, which
only sorts, filters and shows tips.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from serving.report_pages import documents, formatting
from serving.report_pages.plots import Plot
from serving.resources.tuning.experiment import Setting
from serving.resources.tuning.trial import LatencyAt, Usage
from tuner import notation
from tuner.report.plots import history, load_curve, pareto, roles, surfaces, thresholds
from tuner.report.schema import Report, TrialRow
from tuner.report.text import measure, phrases, sentences

_TEMPLATES: Final = documents.environment("tuner.report", "page_files")


def render(report: Mapping[str, Any]) -> str:
    """Return the HTML page, in which the report itself is embedded as JSON.

    Args:
        report: the report of `content.of`, or parsed from its JSON.

    Raises:
        pydantic.ValidationError: not a report of this version; it names the field.
    """
    parsed = Report.model_validate(report)
    return documents.render(
        _TEMPLATES,
        report,
        report=parsed,
        words=sentences.sections(parsed),
        chips=_chips(parsed),
        facts=_facts(parsed),
        lineup=history.lineup(parsed),
        evidence=_evidence(parsed),
        changes=_changes(parsed),
        search=[plot for plot in (history.steps(parsed), history.expected_regret(parsed)) if plot],
        shares=surfaces.shares(parsed),
        curves=[surfaces.curve(parsed, curve) for curve in parsed.model.curves] if parsed.model else [],
        surfaces=_surfaces(parsed),
        around=_spec_of_slices(parsed),
        trials=trial_table(parsed),
        formatting=formatting,
        phrases=phrases,
    )


def _spec_of_slices(report: Report) -> str:
    """Return the spec whose values the slices and surfaces of the model hold for the parameters not shown."""
    if report.model is None:
        return ""
    axes = report.question.axes
    ranks = surfaces.ranks_of(axes, report.model.around)
    return notation.spec(
        [
            Setting(category=axis.category, name=axis.name, value=axis.values[rank])
            for axis, rank in zip(axes, ranks, strict=True)
        ]
    )


def _chips(report: Report) -> list[tuple[str, str]]:
    """Return the settings of the recommended spec: name and value."""
    choice = report.answer.choice
    return [(setting.name, setting.value) for setting in choice.settings] if choice else []


def _facts(report: Report) -> list[tuple[str, str, str]]:
    """Return the key figures of the recommended spec: name, value and a note."""
    choice = report.answer.choice
    if choice is None:
        return []
    objective = measure.of(report.question)
    facts: list[tuple[str, str, str]] = []
    if choice.objective is not None and (estimate := objective.estimate(choice.objective)) is not None:
        facts.append(
            (
                objective.label,
                objective.write(estimate.value),
                _range(estimate.low, estimate.high, objective.write),
            )
        )
    for check in choice.checks:
        bound = report.question.constraints[check.constraint]
        write = notation.writer(bound)
        facts.append((notation.metric(bound), write(check.measured.value), f"at most {write(check.bound)}"))
    if choice.throughput is not None:
        rate = choice.throughput
        facts.append(
            (
                "requests per second",
                formatting.number(rate.value),
                _range(rate.low, rate.high, formatting.number),
            )
        )
    if choice.cost_per_hour is not None:
        facts.append(
            ("cost per hour of a replica", formatting.number(choice.cost_per_hour), _current_cost(report))
        )
    return facts


def _range(low: float, high: float, write: Callable[[float], str]) -> str:
    """Return an interval as a note; empty if the texts of both ends are equal."""
    if math.isinf(high):
        return f"{write(low)} or more"
    return f"{write(low)} to {write(high)}" if write(low) != write(high) else ""


def _current_cost(report: Report) -> str:
    """Return the cost per hour of the current spec as a note; empty if the cost is unknown."""
    current = report.answer.current
    cost = current.cost_per_hour if current else report.answer.current_cost_per_hour
    return f"today {formatting.number(cost)}" if cost else ""


def _evidence(report: Report) -> list[Plot]:
    """Return the plots of measurements: Pareto fronts and the load curve."""
    plots = [pareto.front(report, front) for front in report.fronts]
    load = load_curve.load(report)
    return [*plots, load] if load else plots


def _changes(report: Report) -> list[Plot]:
    """Return the plots of bounds and prices at which another spec would be recommended."""
    return [
        *(thresholds.bound(report, change) for change in report.bounds if len(change.segments) > 1),
        *(thresholds.price(report, change) for change in report.prices if len(change.segments) > 1),
    ]


def _surfaces(report: Report) -> list[tuple[str, Plot]]:
    """Return the plot of each pair of parameters, with the pair's name."""
    axes = report.question.axes
    return [
        (f"{axes[surface.x].name} and {axes[surface.y].name}", surfaces.surface(report, surface))
        for surface in (report.model.surfaces if report.model else [])
    ]


def trial_table(report: Report) -> dict[str, Any]:
    """Return `columns` and `rows` of the table of trials; a row is that of `_trial_row`."""
    objective = measure.of(report.question)
    bounds = report.question.constraints
    columns = ["trial", *(axis.name for axis in report.question.axes), objective.label]
    columns += [
        *(notation.metric(bound) for bound in bounds),
        "requests per second",
        "cost per hour",
        "outcome",
        "duration",
    ]
    return {"columns": columns, "rows": [_trial_row(report, row, objective) for row in report.trials]}


def _trial_row(report: Report, row: TrialRow, objective: measure.ObjectiveMeasure) -> dict[str, Any]:
    """Return a trial with its `cells`, each a text and a sort key, and the rows of its `windows`."""
    values = {(setting.category, setting.name): setting.value for setting in row.settings}
    cells: list[tuple[str, float | str]] = [(str(row.number), row.number)]
    for axis in report.question.axes:
        value = values.get((axis.category, axis.name), "")
        cells.append((value, axis.values.index(value) if value in axis.values else -1))
    estimate = objective.estimate(row.objective) if row.objective else None
    cells.append(
        (notation.interval(estimate, objective.write), estimate.value) if estimate else (formatting.DASH, "")
    )
    cells += [_constraint_cell(row, bound) for bound in report.question.constraints]
    rate = row.result.throughput if row.result else None
    cells.append((formatting.number(rate.value), rate.value) if rate else (formatting.DASH, ""))
    cells.append((formatting.number(row.cost_per_hour), row.cost_per_hour))
    cells.append((phrases.ended(row), phrases.ended(row)))
    cells.append((formatting.duration(row.seconds), row.seconds))
    css = roles.role(report, row.spec, row.name, row.meets) if row.result else "failed"
    return {
        "row": row,
        "cells": cells,
        "css": css,
        "purpose": phrases.purpose(row),
        "windows": _window_rows(report, row),
    }


def _constraint_cell(row: TrialRow, bound: notation.ConstrainedMetric) -> tuple[str, float | str]:
    """Return the measured value of a constraint's metric as a cell."""
    if row.result is None:
        return formatting.DASH, ""
    if bound.metric == "errorRate":
        return formatting.percent(row.result.error_rate.value), row.result.error_rate.value
    for latency in row.result.latencies:
        if (latency.metric, latency.percentile) == (bound.metric, bound.percentile):
            return formatting.duration(latency.value), latency.value
    return formatting.DASH, ""


def _window_rows(report: Report, row: TrialRow) -> list[tuple[str, ...]]:
    """Return a row of texts for each window of a trial, in the order of the columns in `page.html`."""
    return [
        (
            phrases.level(report.question, window.level),
            formatting.duration(window.seconds),
            f"{window.requests:,}",
            notation.interval(window.throughput, formatting.number),
            ", ".join(_latency(latency) for latency in window.latencies),
            formatting.percent(window.error_rate.value),
            _usage(window.usage),
            {"Yes": "met", "No": "broken", "Unsure": "uncertain"}[window.meets],
        )
        for window in row.windows
    ]


def _usage(usage: Usage) -> str:
    return f"{formatting.number(usage.cpu_cores)} cores, {formatting.size(usage.memory_bytes)}"


def _latency(latency: LatencyAt) -> str:
    return f"p{latency.percentile} {notation.METRICS[latency.metric]} {formatting.duration(latency.value)}"
