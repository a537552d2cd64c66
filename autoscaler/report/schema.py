"""The values of a report, from which its page, its sentences and its JSON are made. Pure."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autoscaler.simulate.comparison import Change, Column

PERFECT_KNOWLEDGE = "perfect knowledge"
"""Name of the row of the cheapest known schedule in which no request waits too long."""


@dataclass(frozen=True, slots=True)
class SimulatedService:
    """The simulated service."""

    start: float
    """Unix seconds."""
    seconds: int
    lead: int
    """Seconds at the start that are not scored."""
    history_seconds: float
    unit: str
    replica_rate: float
    """Units per second."""
    concurrency: int
    service_seconds: float
    wait: float
    """Seconds that a request may wait."""
    min_replicas: int
    max_replicas: int
    startup: str
    """Seconds, or the name of a distribution."""
    seed: int


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """The scores of one policy."""

    name: str
    risk: float | None
    ours: bool
    violations: float
    """Percent of requests that waited too long."""
    windows: float
    """Percent of minutes in which more than 1 % of requests waited too long."""
    p99: float
    """Seconds of wait."""
    replica_hours: float
    over_oracle: float
    cold: float
    """Percent of requests that arrived at zero replicas."""
    actions: float
    """Changes per hour."""
    reversals: float
    """Changes of direction within ten minutes of the last change, per hour."""
    is_pareto_optimal: bool
    """No other policy is better in one of violations and cost, and as good in the other."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The load of one column of the timeline."""

    time: float
    """Unix seconds: the start of the column."""
    rate: float
    """Mean work per second."""
    requests: float
    needed: int
    """Replicas with perfect knowledge."""


@dataclass(frozen=True, slots=True)
class Track:
    """The timeline of one policy."""

    name: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """The values of the report."""

    name: str
    """Name of the trace."""
    generated_at: str
    """RFC 3339."""
    version: str
    service: SimulatedService
    assumed: tuple[str, ...]
    """Assumptions about unknown facts, in sentences."""
    main: str
    """Name of our policy, whose changes and reasons are shown."""
    rows: tuple[PolicyRow, ...]
    step: int
    """Seconds of a column."""
    moments: tuple[Moment, ...]
    tracks: tuple[Track, ...]
    """The main one first."""
    changes: tuple[Change, ...]
    reasons: Mapping[str, int]
    """Decisions of the main policy by reason."""

    def row(self, name: str) -> PolicyRow:
        """Return the row of a policy."""
        return next(row for row in self.rows if row.name == name)

    def when(self, moment: float) -> str:
        """Return a Unix time as text, in UTC."""
        return dt.datetime.fromtimestamp(moment, dt.UTC).strftime("%a %d %b %H:%M:%S")


def as_json(report: SimulationReport) -> dict[str, Any]:
    """Return the report as a JSON object with camelCase names; timelines have one list per field."""
    document: dict[str, Any] = _camel(asdict(report))
    document["reasons"] = dict(report.reasons)
    document["moments"] = _by_field(document["moments"])
    for track in document["tracks"]:
        track["columns"] = _by_field(track["columns"])
    return document


def _by_field(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {_name(key): _camel(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_camel(inner) for inner in value]
    return round(value, 6) if isinstance(value, float) else value


def _name(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word.capitalize() for word in rest)
