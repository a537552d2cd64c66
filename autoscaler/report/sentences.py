"""What a report says in words: what it cost, what waited, and how others would have done."""

from collections.abc import Mapping

from autoscaler.report.shape import KNOWING, Report, Row
from serving.pages import figures

_SAME = 0.005
"""Relative difference of cost that is none: one run says no more."""


def of(report: Report) -> Mapping[str, list[str]]:
    """Return sentences by section: headline, compared, service, assumed."""
    return {
        "headline": [_headline(report)],
        "compared": _compared(report),
        "service": _service(report),
        "assumed": list(report.assumed),
    }


def percent(value: float) -> str:
    """Return percent, with `none` where there is nothing."""
    return figures.percent(value / 100)


def _headline(report: Report) -> str:
    row = report.row(report.main)
    late = (
        "No request waited too long"
        if row.violations == 0
        else f"{percent(row.violations)} of requests waited longer than {figures.duration(report.service.wait)}"
    )
    return (
        f"{late}, for {figures.number(row.replica_hours)} replica-hours: "
        f"{figures.times(row.over_oracle)} what perfect knowledge of the load needs."
    )


def _compared(report: Report) -> list[str]:
    mine = report.row(report.main)
    others = [row for row in report.rows if not row.ours and row.name != KNOWING]
    if not others:
        return []
    return [_cheapest(mine, others), _safest(mine, others), _beaten(mine, others)]


def _cheapest(mine: Row, others: list[Row]) -> str:
    """Return what the others charge for no more violations."""
    safe = [row for row in others if row.violations <= mine.violations]
    if not safe:
        return f"No other policy had as few violations as {mine.name}."
    best = min(safe, key=lambda row: row.replica_hours)
    return f"Of those with no more violations, the cheapest is {best.name}: {_cost(best, mine)}."


def _safest(mine: Row, others: list[Row]) -> str:
    """Return what the others let wait at no more cost."""
    cheap = [row for row in others if row.replica_hours <= mine.replica_hours * (1 + _SAME)]
    if not cheap:
        return f"No other policy was as cheap as {mine.name}."
    best = min(cheap, key=lambda row: row.violations)
    return (
        f"Of those that cost no more, {best.name} has the fewest violations: {percent(best.violations)},"
        f" against {percent(mine.violations)}."
    )


def _beaten(mine: Row, others: list[Row]) -> str:
    better = [
        row.name
        for row in others
        if row.violations < mine.violations and row.replica_hours < mine.replica_hours
    ]
    if not better:
        return f"None of {len(others)} is better than {mine.name} in both."
    verb = "is" if len(better) == 1 else "are"
    return f"{figures.listed(better)} {verb} better than {mine.name} in both."


def _cost(row: Row, mine: Row) -> str:
    share = row.replica_hours / max(mine.replica_hours, 1e-9) - 1
    if abs(share) < _SAME:
        return "it costs the same"
    return f"it costs {figures.percent(abs(share))} {'more' if share > 0 else 'less'}"


def _service(report: Report) -> list[str]:
    service = report.service
    known = (
        f"Policies know the {figures.duration(service.history_seconds)} before."
        if service.history_seconds
        else "Policies know nothing of the time before."
    )
    starts = (
        "as long as on a production fleet"
        if not service.startup.replace(".", "").isdigit()
        else f"about {figures.duration(float(service.startup))}"
    )
    span = (
        f"{figures.duration(service.seconds)} from {report.when(service.start)} UTC on, the first "
        f"{figures.duration(service.lead)} not scored. {known}"
    )
    replica = (
        f"A replica takes {figures.number(service.replica_rate)} {service.unit} per second, "
        f"{figures.count(service.concurrency, 'request')} at the same time. It starts within {starts}; "
        "2 % of starts fail and begin again."
    )
    bounds = (
        f"A request may wait {figures.duration(service.wait)}. Between {service.min_replicas} and "
        f"{service.max_replicas} replicas; those that start are paid too."
    )
    return [span, replica, bounds]
