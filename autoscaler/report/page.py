"""Renders a report as one self-contained HTML page, which loads nothing and works from a file."""

from typing import Final

from autoscaler.report import plots, sentences
from autoscaler.report.schema import SimulationReport, as_json
from serving.report_pages import documents, formatting

_TEMPLATES: Final = documents.environment("autoscaler.report", "page_files")


def render(report: SimulationReport) -> str:
    """Return the page."""
    return documents.render(
        _TEMPLATES,
        as_json(report),
        report=report,
        words=sentences.of(report),
        facts=_facts(report),
        load=plots.load(report),
        replicas=[(timeline.name, plots.replicas(report, timeline)) for timeline in report.tracks],
        tradeoff=plots.tradeoff(report),
        columns=plots.COLUMNS,
        rows=[(row, plots.cells(row)) for row in report.rows],
        changes=plots.changes(report),
        reasons=_reasons(report),
        formatting=formatting,
    )


def _facts(report: SimulationReport) -> list[tuple[str, str, str]]:
    """Return the headline numbers: name, value and note."""
    row = report.row(report.main)
    return [
        (
            "requests that waited too long",
            sentences.percent(row.violations),
            f"longer than {formatting.duration(report.service.wait)}",
        ),
        (
            "replica-hours",
            formatting.number(row.replica_hours),
            f"{formatting.number(row.over_oracle)} \u00d7 perfect knowledge",
        ),
        ("99 % waited at most", formatting.duration(row.p99), ""),
        (
            "changes an hour",
            formatting.number(row.actions),
            f"{formatting.number(row.reversals)} an hour reversed within 10 min",
        ),
        ("found no replica", sentences.percent(row.cold), ""),
    ]


def _reasons(report: SimulationReport) -> list[tuple[str, str, str]]:
    """Return how often each reason decided: reason, count and share."""
    total = max(sum(report.reasons.values()), 1)
    return [
        (reason, f"{count:,}", formatting.percent(count / total)) for reason, count in report.reasons.items()
    ]
