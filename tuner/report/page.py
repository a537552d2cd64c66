"""The report as one self-contained HTML page: no network, no fonts, no third-party scripts.

Jinja and MarkupSafe escape every text of the report. The page works from a file and without its script, which
only sorts, filters and shows tips.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from serving.pages import documents, figures
from serving.pages.plots import Plot
from serving.resources.tuning.experiment import Setting
from serving.resources.tuning.trial import LatencyAt
from tuner import notation
from tuner.report.plots import history, load_curve, pareto, roles, surfaces, thresholds
from tuner.report.schema import Report, TrialRow
from tuner.report.text import measure, phrases, sentences

_TEMPLATES: Final = documents.environment("tuner.report", "page_files")


def render(report: Mapping[str, Any]) -> str:
    """Return the page.

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
        around=_around(parsed),
        trials=trial_table(parsed),
        figures=figures,
        phrases=phrases,
    )


def _around(report: Report) -> str:
    """Return the spec that slices and surfaces pass through."""
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
    choice = report.answer.choice
    return [(setting.name, setting.value) for setting in choice.settings] if choice else []


def _facts(report: Report) -> list[tuple[str, str, str]]:
    """Return the key figures: name, value and a remark."""
    choice = report.answer.choice
    if choice is None:
        return []
    shown = measure.of(report.question)
    facts: list[tuple[str, str, str]] = []
    if choice.objective is not None and (estimate := shown.estimate(choice.objective)) is not None:
        facts.append(
            (shown.label, shown.write(estimate.value), _span(estimate.low, estimate.high, shown.write))
        )
    for check in choice.checks:
        bound = report.question.constraints[check.constraint]
        write = notation.writer(bound)
        facts.append((notation.metric(bound), write(check.measured.value), f"at most {write(check.bound)}"))
    if choice.throughput is not None:
        rate = choice.throughput
        facts.append(
            ("requests per second", figures.number(rate.value), _span(rate.low, rate.high, figures.number))
        )
    if choice.cost_per_hour is not None:
        facts.append(("cost per hour of a replica", figures.number(choice.cost_per_hour), _today(report)))
    return facts


def _span(low: float, high: float, write: Any) -> str:
    if math.isinf(high):
        return f"{write(low)} or more"
    return f"{write(low)} to {write(high)}" if write(low) != write(high) else ""


def _today(report: Report) -> str:
    current = report.answer.current
    cost = current.cost_per_hour if current else report.answer.current_cost_per_hour
    return f"today {figures.number(cost)}" if cost else ""


def _evidence(report: Report) -> list[Plot]:
    plots = [pareto.front(report, front) for front in report.fronts]
    load = load_curve.load(report)
    return [*plots, load] if load else plots


def _changes(report: Report) -> list[Plot]:
    return [
        *(thresholds.bound(report, change) for change in report.bounds if len(change.segments) > 1),
        *(thresholds.price(report, change) for change in report.prices if len(change.segments) > 1),
    ]


def _surfaces(report: Report) -> list[tuple[str, Plot]]:
    axes = report.question.axes
    shown = report.model.surfaces if report.model else []
    return [
        (f"{axes[surface.x].name} and {axes[surface.y].name}", surfaces.surface(report, surface))
        for surface in shown
    ]


def trial_table(report: Report) -> dict[str, Any]:
    """Return columns and rows of the table of trials; each cell has its text and its sort key."""
    shown = measure.of(report.question)
    bounds = report.question.constraints
    columns = ["trial", *(axis.name for axis in report.question.axes), shown.label]
    columns += [
        *(notation.metric(bound) for bound in bounds),
        "requests per second",
        "cost per hour",
        "outcome",
        "duration",
    ]
    return {"columns": columns, "rows": [_trial(report, row, shown) for row in report.trials]}


def _trial(report: Report, row: TrialRow, shown: measure.ObjectiveMeasure) -> dict[str, Any]:
    values = {(setting.category, setting.name): setting.value for setting in row.settings}
    cells: list[tuple[str, float | str]] = [(str(row.number), row.number)]
    for axis in report.question.axes:
        value = values.get((axis.category, axis.name), "")
        cells.append((value, axis.values.index(value) if value in axis.values else -1))
    estimate = shown.estimate(row.objective) if row.objective else None
    cells.append(
        (notation.interval(estimate, shown.write), estimate.value) if estimate else (figures.DASH, "")
    )
    cells += [_checked(row, i, report) for i in range(len(report.question.constraints))]
    rate = row.result.throughput if row.result else None
    cells.append((figures.number(rate.value), rate.value) if rate else (figures.DASH, ""))
    cells.append((figures.number(row.cost_per_hour), row.cost_per_hour))
    cells.append((phrases.ended(row), phrases.ended(row)))
    cells.append((figures.duration(row.seconds), row.seconds))
    css = roles.role(report, row.spec, row.name, row.meets) if row.result else "failed"
    return {
        "row": row,
        "cells": cells,
        "css": css,
        "purpose": phrases.purpose(row),
        "windows": _windows(report, row),
    }


def _checked(row: TrialRow, constraint: int, report: Report) -> tuple[str, float | str]:
    bound = report.question.constraints[constraint]
    if row.result is None:
        return figures.DASH, ""
    if bound.metric == "errorRate":
        return figures.percent(row.result.error_rate.value), row.result.error_rate.value
    for latency in row.result.latencies:
        if (latency.metric, latency.percentile) == (bound.metric, bound.percentile):
            return figures.duration(latency.value), latency.value
    return figures.DASH, ""


def _windows(report: Report, row: TrialRow) -> list[tuple[str, ...]]:
    """Return the rows of a trial's windows."""
    return [
        (
            phrases.level(report.question, window.level),
            figures.duration(window.seconds),
            f"{window.requests:,}",
            notation.interval(window.throughput, figures.number),
            ", ".join(_latency(latency) for latency in window.latencies),
            figures.percent(window.error_rate.value),
            f"{figures.number(window.usage.cpu_cores)} cores, {figures.size(window.usage.memory_bytes)}",
            {"Yes": "met", "No": "broken", "Unsure": "uncertain"}[window.meets],
        )
        for window in row.windows
    ]


def _latency(latency: LatencyAt) -> str:
    return f"p{latency.percentile} {notation.METRICS[latency.metric]} {figures.duration(latency.value)}"
