"""The report as one self-contained HTML page: no network, no fonts, no third-party scripts.

It works from a file. It combines the sentences and the plots and computes nothing. Jinja and MarkupSafe
escape every text of the report. The script only sorts, filters and shows tips: the page works without it.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from serving.pages import documents, figures
from serving.pages.plots import Plot
from serving.resources.experiment import Setting
from serving.resources.trial import LatencyAt
from tuner import notation
from tuner.report.plots import history, load_curve, pareto, roles, surfaces, thresholds
from tuner.report.schema import Report, TrialRow
from tuner.report.text import measure, phrases, sentences

_TEMPLATES: Final = documents.environment("tuner.report", "page_files")


def render(report: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        report: as `content.of` returns it, or read back from its JSON.

    Raises:
        pydantic.ValidationError: not a report of this version; it names the field.
    """
    found = Report.model_validate(report)
    return documents.render(
        _TEMPLATES,
        report,
        report=found,
        words=sentences.told(found),
        chips=_chips(found),
        facts=_facts(found),
        lineup=history.lineup(found),
        evidence=_evidence(found),
        changes=_changes(found),
        search=[plot for plot in (history.steps(found), history.missed(found)) if plot],
        shares=surfaces.shares(found),
        curves=[surfaces.curve(found, curve) for curve in found.model.curves] if found.model else [],
        surfaces=_surfaces(found),
        around=_around(found),
        trials=trial_table(found),
        figures=figures,
        phrases=phrases,
    )


def _around(report: Report) -> str:
    """Return the spec around which slices and surfaces are."""
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
    found: list[tuple[str, str, str]] = []
    if choice.objective is not None and (estimate := shown.estimate(choice.objective)) is not None:
        found.append(
            (shown.label, shown.write(estimate.value), _span(estimate.low, estimate.high, shown.write))
        )
    for check in choice.checks:
        bound = report.question.constraints[check.constraint]
        write = notation.writer(bound)
        found.append((notation.metric(bound), write(check.measured.value), f"at most {write(check.bound)}"))
    if choice.throughput is not None:
        rate = choice.throughput
        found.append(
            ("requests per second", figures.number(rate.value), _span(rate.low, rate.high, figures.number))
        )
    if choice.cost_per_hour is not None:
        found.append(("cost per hour of a replica", figures.number(choice.cost_per_hour), _today(report)))
    return found


def _span(low: float, high: float, write: Any) -> str:
    if math.isinf(high):
        return f"{write(low)} or more"
    return f"{write(low)} to {write(high)}" if write(low) != write(high) else ""


def _today(report: Report) -> str:
    current = report.answer.current
    cost = current.cost_per_hour if current else report.answer.current_cost_per_hour
    return f"today {figures.number(cost)}" if cost else ""


def _evidence(report: Report) -> list[Plot]:
    found = [pareto.front(report, front) for front in report.fronts]
    load = load_curve.load(report)
    return [*found, load] if load else found


def _changes(report: Report) -> list[Plot]:
    return [
        *(thresholds.bound(report, change) for change in report.bounds if len(change.segments) > 1),
        *(thresholds.price(report, change) for change in report.prices if len(change.segments) > 1),
    ]


def _surfaces(report: Report) -> list[tuple[str, Plot]]:
    axes = report.question.axes
    found = report.model.surfaces if report.model else []
    return [
        (f"{axes[surface.x].name} and {axes[surface.y].name}", surfaces.surface(report, surface))
        for surface in found
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
        "why it ended",
        "took",
    ]
    return {"columns": columns, "rows": [_trial(report, row, shown) for row in report.trials]}


def _trial(report: Report, row: TrialRow, shown: measure.Measure) -> dict[str, Any]:
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
    done = row.result.throughput if row.result else None
    cells.append((figures.number(done.value), done.value) if done else (figures.DASH, ""))
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
    for seen in row.result.latencies:
        if (seen.metric, seen.percentile) == (bound.metric, bound.percentile):
            return figures.duration(seen.value), seen.value
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
            {"Yes": "met", "No": "broken", "Unsure": "cannot be told"}[window.meets],
        )
        for window in row.windows
    ]


def _latency(found: LatencyAt) -> str:
    return f"p{found.percentile} {notation.METRICS[found.metric]} {figures.duration(found.value)}"
