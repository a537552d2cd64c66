"""What a scaling policy is given: the load of one target, its replicas, and the moment. Values only. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

LONGEST_READING = 86_400.0
"""Seconds between two readings from which on their difference says nothing of the load now."""
MOST_WORK = 1e12
"""Work per second, and requests: a million requests per second of a million tokens each."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one target between two readings, summed over its gateways."""

    start: float
    """Unix seconds."""
    end: float
    """Unix seconds: when the counts were read, which may be seconds before the decision."""
    arrivals: float
    """Requests that entered; counted on entry, so that a slow target does not hide its load."""
    work: float
    """Arriving work in the unit that `Capacity.rate` counts per second: requests, tokens, or seconds of a GPU."""
    finished: float
    """Requests that were answered."""
    in_flight: float
    """Requests at replicas at `end`, those that queue there included; held requests are not."""
    held: float
    """Requests at `end` that wait because no replica is ready."""
    latency: float | None = None
    """Mean seconds from entry to the end of the answer; None: nothing was answered."""
    errors: float = 0.0
    """Requests that were answered with 5xx or not at all."""

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def is_plausible(self) -> bool:
        """Whether a target can have this load: figures from 0 on within bounds; infinite and NaN are none."""
        figures = (self.arrivals, self.work, self.finished, self.errors)
        if not abs(self.seconds) <= LONGEST_READING or not 0 <= (self.latency or 0.0) < MOST_WORK:
            return False
        most = MOST_WORK * max(self.seconds, 1.0)
        return all(0 <= figure <= most for figure in figures) and all(
            0 <= figure <= MOST_WORK for figure in (self.in_flight, self.held)
        )


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of one target."""

    desired: int
    """What the scale subresource asks for."""
    ready: int
    starting: tuple[float, ...] = ()
    """Unix seconds at which each replica that is not ready was created, the oldest first."""
    started: tuple[float, ...] = ()
    """Start-up times in seconds of the replicas that became ready since the last observation."""
    failed: tuple[float, ...] = ()
    """Seconds after which starts failed, since the last observation."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica can take while its objective is met."""

    rate: float
    """Work per second."""
    concurrency: float
    """Requests in flight at that rate."""


@dataclass(frozen=True, slots=True)
class Percentile:
    """How long the requests of about the last minute took, from entry to the end of the answer."""

    seconds: float | None
    """None: too few were answered to tell."""
    answers: float
    """That it is of."""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What the replicas' own pages say together, as far as they tell."""

    tokens: float
    """Prompt and generated tokens per second."""
    replicas: int
    """That have told of tokens."""
    waiting: float = 0.0
    """Requests."""
    cache: float = 0.0
    """Share of the KV cache in use, 0 to 1: of the replica that uses the most."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of one target at one tick."""

    now: float
    """Unix seconds."""
    replicas: Replicas
    load: Load | None
    """None: no gateway that is alive has given a plausible new reading since the last tick."""
    gauges: Mapping[str, float] = field(default_factory=dict)
    """Values by metric name that are not counted by gateways: utilisation of one replica from 0 to 1, tokens waiting,
    results of queries. A name that is absent was not measured."""
    percentiles: Mapping[str, Percentile] = field(default_factory=dict)
    """By name of a metric of the type Latency. A name that is absent was not measured."""
    engines: EngineLoad | None = None
    """None: no metric asks for it, or no replica tells."""
