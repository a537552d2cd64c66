"""The sentences of a report: cost and late requests of our policy, compared with other policies. Pure."""

import datetime as dt
from collections.abc import Mapping

from autoscaler.report.schema import PERFECT_KNOWLEDGE, PolicyRow, SimulationReport
from autoscaler.simulate.comparison import FLEET
from autoscaler.simulate.startup import FAILURE_SHARE
from serving.report_pages import formatting

_SAME_COST = 0.005
"""Relative difference of replica-hours below which two costs count as equal: one run is no more precise."""


def of(report: SimulationReport) -> Mapping[str, list[str]]:
    """Return the sentences of each section: `headline`, `compared`, `service` and `assumed`."""
    return {
        "headline": [_headline(report)],
        "compared": _compared(report),
        "service": _service(report),
        "assumed": list(report.assumed),
    }


def percent(value: float) -> str:
    """Return a percentage, 0 to 100, as text."""
    return formatting.percent(value / 100)


def format_time(time: float) -> str:
    """Return Unix seconds as text, such as `Mon 01 Jan 10:30:00`, in UTC."""
    return dt.datetime.fromtimestamp(time, dt.UTC).strftime("%a %d %b %H:%M:%S")


def _headline(report: SimulationReport) -> str:
    row = report.row(report.main)
    wait = formatting.duration(report.service.wait)
    late = (
        "No request waited too long"
        if row.violations == 0
        else f"{percent(row.violations)} of requests waited longer than {wait}"
    )
    return (
        f"{late}, for {formatting.number(row.replica_hours)} replica-hours: "
        f"{formatting.times(row.over_oracle)} what perfect knowledge of the load needs."
    )


def _compared(report: SimulationReport) -> list[str]:
    main_row = report.row(report.main)
    others = [row for row in report.rows if not row.ours and row.name != PERFECT_KNOWLEDGE]
    if not others:
        return []
    return [_cheapest(main_row, others), _safest(main_row, others), _beaten(main_row, others)]


def _cheapest(main_row: PolicyRow, others: list[PolicyRow]) -> str:
    """Return the sentence about the cheapest policy with no more violations."""
    safe = [row for row in others if row.violations <= main_row.violations]
    if not safe:
        return f"No other policy had as few violations as {main_row.name}."
    best = min(safe, key=lambda row: row.replica_hours)
    return f"Of those with no more violations, the cheapest is {best.name}: {_cost(best, main_row)}."


def _safest(main_row: PolicyRow, others: list[PolicyRow]) -> str:
    """Return the sentence about the policy with the fewest violations at no more cost."""
    cheap = [row for row in others if row.replica_hours <= main_row.replica_hours * (1 + _SAME_COST)]
    if not cheap:
        return f"No other policy was as cheap as {main_row.name}."
    best = min(cheap, key=lambda row: row.violations)
    return (
        f"Of those that cost no more, {best.name} has the fewest violations: {percent(best.violations)},"
        f" against {percent(main_row.violations)}."
    )


def _beaten(main_row: PolicyRow, others: list[PolicyRow]) -> str:
    """Return the sentence about the policies with both fewer violations and a lower cost."""
    better = [
        row.name
        for row in others
        if row.violations < main_row.violations
        and row.replica_hours < main_row.replica_hours * (1 - _SAME_COST)
    ]
    if not better:
        return f"No other policy has both fewer violations and a lower cost than {main_row.name}."
    verb = "has" if len(better) == 1 else "have"
    return f"{formatting.listed(better)} {verb} both fewer violations and a lower cost than {main_row.name}."


def _cost(row: PolicyRow, main_row: PolicyRow) -> str:
    """Return the end of a sentence: the cost of a policy relative to the main policy."""
    difference = row.replica_hours / max(main_row.replica_hours, 1e-9) - 1
    if abs(difference) < _SAME_COST:
        return "it costs the same"
    return f"it costs {formatting.percent(abs(difference))} {'more' if difference > 0 else 'less'}"


def _service(report: SimulationReport) -> list[str]:
    service = report.service
    known = (
        f"Policies know the {formatting.duration(service.history_seconds)} before."
        if service.history_seconds
        else "Policies know nothing of the time before."
    )
    is_fleet = service.startup == FLEET
    startup = (
        "as long as on a production fleet"
        if is_fleet
        else f"about {formatting.duration(float(service.startup))}"
    )
    period = (
        f"{formatting.duration(service.seconds)} from {format_time(service.start)} UTC on, the first "
        f"{formatting.duration(service.lead)} not scored. {known}"
    )
    replica = (
        f"A replica serves {formatting.number(service.replica_rate)} {service.unit} per second, "
        f"{formatting.count(service.concurrency, 'request')} at the same time. It starts within {startup}; "
        f"{formatting.percent(FAILURE_SHARE)} of starts fail and begin again."
    )
    bounds = (
        f"A request may wait {formatting.duration(service.wait)}. Between {service.min_replicas} and "
        f"{service.max_replicas} replicas; starting replicas are paid too."
    )
    return [period, replica, bounds]
