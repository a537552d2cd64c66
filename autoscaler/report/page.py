"""A report as one HTML page that needs nothing else: no network, no fonts, no scripts of others; it works
from a file.
"""

from typing import Final

from autoscaler.report import plots, sentences
from autoscaler.report.shape import Report, as_json
from serving.pages import documents, figures

_TEMPLATES: Final = documents.environment("autoscaler.report", "page_files")


def render(report: Report) -> str:
    """Return the page."""
    mine = report.row(report.main)
    return documents.render(
        _TEMPLATES,
        as_json(report),
        report=report,
        mine=mine,
        words=sentences.of(report),
        facts=_facts(report),
        load=plots.load(report),
        replicas=[(track.name, plots.replicas(report, track)) for track in report.tracks],
        front=plots.front(report),
        columns=plots.COLUMNS,
        rows=[(row, plots.cells(row)) for row in report.rows],
        changes=plots.changes(report),
        reasons=_reasons(report),
        figures=figures,
    )


def _facts(report: Report) -> list[tuple[str, str, str]]:
    """Return the numbers that stand out: name, value, and what is to be known of it."""
    row = report.row(report.main)
    return [
        (
            "requests that waited too long",
            sentences.percent(row.violations),
            f"longer than {figures.duration(report.service.wait)}",
        ),
        (
            "replica-hours",
            figures.number(row.replica_hours),
            f"{figures.number(row.over_oracle)} \u00d7 perfect knowledge",
        ),
        ("99 % waited at most", figures.duration(row.p99), ""),
        ("changes an hour", figures.number(row.actions), f"{figures.number(row.flips)} turns within 10 min"),
        ("found no replica", sentences.percent(row.cold), ""),
    ]


def _reasons(report: Report) -> list[tuple[str, str, str]]:
    """Return how often each rule bound."""
    total = max(sum(report.reasons.values()), 1)
    return [(reason, f"{many:,}", figures.percent(many / total)) for reason, many in report.reasons.items()]
