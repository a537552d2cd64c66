"""The values of a report, from which its page, its sentences and its JSON are made. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autoscaler.simulate.comparison import Change, TimelineColumn

PERFECT_KNOWLEDGE = "perfect knowledge"
"""Name of the row of the cheapest known schedule in which no request waits too long."""


@dataclass(frozen=True, slots=True)
class SimulatedService:
    """The inputs of the simulation."""

    start: float
    """Unix seconds of the start of the run."""
    seconds: int
    """Length of the run."""
    lead: int
    """Seconds at the start of the run that are not scored."""
    history_seconds: float
    """Length of the load before the run that policies know."""
    unit: str
    """Unit of work: `requests`, `tokens` or `GPU seconds`."""
    replica_rate: float
    """Work per second of one replica."""
    concurrency: int
    """Requests that one replica serves at the same time."""
    service_seconds: float
    """Mean service time of a request, without its wait."""
    wait: float
    """Seconds that a request may wait."""
    min_replicas: int
    max_replicas: int
    startup: str
    """Start-up time: seconds as the user wrote them, or the name `fleet` of a law."""
    seed: int


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """The scores of one policy."""

    name: str
    risk: float | None
    """Risk of our policy in percent; None: the default, or another policy."""
    ours: bool
    """Whether the policy is our policy, at any risk."""
    violations: float
    """Percent of requests that waited too long."""
    windows: float
    """Percent of minutes in which more than 1 % of requests waited too long."""
    p99: float
    """Seconds of wait: the 99th percentile."""
    replica_hours: float
    over_oracle: float
    """Ratio of replica-hours to those of perfect knowledge."""
    cold: float
    """Percent of requests that arrived at zero replicas."""
    actions: float
    """Changes of the desired count per hour."""
    reversals: float
    """Changes of direction within ten minutes of the last change, per hour."""
    is_pareto_optimal: bool
    """Whether no other policy is better in violations or replica-hours and at least as good in the other."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The load of one column of the timeline."""

    time: float
    """Unix seconds: the start of the column."""
    rate: float
    """Mean arriving work per second."""
    requests: float
    """Requests that arrive in the column."""
    needed: int
    """Highest ready count with perfect knowledge."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of one policy."""

    name: str
    """Name of the policy's row."""
    columns: tuple[TimelineColumn, ...]


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """The report of one simulation."""

    name: str
    """Name of the trace."""
    generated_at: str
    """RFC 3339."""
    version: str
    """Name and version of the program."""
    service: SimulatedService
    assumed: tuple[str, ...]
    """Assumptions about unknown facts, in sentences."""
    main: str
    """Name of the main policy, whose changes and reasons are shown: ours."""
    rows: tuple[PolicyRow, ...]
    """Perfect knowledge first, then one row for each policy."""
    step: int
    """Seconds of a column."""
    moments: tuple[Moment, ...]
    """One for each column."""
    tracks: tuple[Timeline, ...]
    """The main policy first."""
    changes: tuple[Change, ...]
    """Changes by the main policy."""
    reasons: Mapping[str, int]
    """Decisions of the main policy by reason."""

    def row(self, name: str) -> PolicyRow:
        """Return the row with a name."""
        return next(row for row in self.rows if row.name == name)


def as_json(report: SimulationReport) -> dict[str, Any]:
    """Return the report as a JSON object with camelCase names; timelines have one list per field."""
    document: dict[str, Any] = _camel(asdict(report))
    document["reasons"] = dict(report.reasons)  # its keys are reasons, not names of fields
    document["moments"] = _by_field(document["moments"])
    for timeline in document["tracks"]:
        timeline["columns"] = _by_field(timeline["columns"])
    return document


def _by_field(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Turn a list of objects with the same fields into one object with a list for each field."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def _camel(value: Any) -> Any:
    """Rename all keys of a JSON value to camelCase, and round its floats to six decimals."""
    if isinstance(value, dict):
        return {_name(key): _camel(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_camel(inner) for inner in value]
    return round(value, 6) if isinstance(value, float) else value


def _name(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word.capitalize() for word in rest)
