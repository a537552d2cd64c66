"""The input of a scaling policy: the load of one target, its replicas, and the time. Values only. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

LONGEST_READING = 86_400.0
"""Seconds of the longest plausible span of a load: a longer span does not describe the current load."""
MOST_WORK = 1e12
"""Highest plausible work per second: a million requests per second of a million tokens each. The same number
bounds requests in flight and held, and seconds of latency."""


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
    """Arriving work in the unit that `Capacity.rate` counts per second: requests, tokens, or GPU seconds."""
    finished: float
    """Requests that were answered."""
    in_flight: float
    """Requests at replicas at `end`, including requests queued there, but not held requests."""
    held: float
    """Requests at `end` that wait because no replica is ready."""
    latency: float | None = None
    """Mean seconds from entry to the end of the answer; None: no request was answered."""
    errors: float = 0.0
    """Requests that were answered with 5xx or never answered."""
    idle: float = 0.0
    """Seconds from `start` in which no request arrived and none was in flight."""

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def is_plausible(self) -> bool:
        """Whether a target can have this load: all figures are finite and within bounds, and at least 0,
        except that `end` may be before `start`.
        """
        if not abs(self.seconds) <= LONGEST_READING or not 0 <= (self.latency or 0.0) < MOST_WORK:
            return False
        if not 0 <= self.idle <= max(self.seconds, 0.0):
            return False
        most = MOST_WORK * max(self.seconds, 1.0)
        return (
            0 <= self.arrivals <= most
            and 0 <= self.work <= most
            and 0 <= self.finished <= most
            and 0 <= self.errors <= most
            and 0 <= self.in_flight <= MOST_WORK
            and 0 <= self.held <= MOST_WORK
        )

    def split(self) -> tuple["Load", ...]:
        """Return the idle part of the span, if there is one, and the part with requests, if there is one."""
        if self.idle <= 0 or self.idle >= self.seconds:
            return (self,)
        busy = self.start + self.idle
        quiet = Load(self.start, busy, arrivals=0, work=0, finished=0, in_flight=0, held=0, idle=self.idle)
        return quiet, replace(self, start=busy, idle=0.0)


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of one target."""

    desired: int
    """`spec.replicas` of the scale subresource."""
    ready: int
    starting: tuple[float, ...] = ()
    """Unix seconds at which each replica that is not ready was created, the oldest first."""
    started: tuple[float, ...] = ()
    """Seconds that each start took that succeeded since the last observation: from the Pod's creation, or its
    last failure."""
    failed: tuple[float, ...] = ()
    """Seconds that each start lost that failed since the last observation: from the Pod's creation, or its
    failure before."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest load of one replica at which its latency stays within the target."""

    rate: float
    """Work per second."""
    concurrency: float
    """Requests in flight at that rate."""
    tokens: float | None = None
    """Prompt and generated tokens per second at that rate, as measured by a CapacityProfile; None while
    unknown."""


@dataclass(frozen=True, slots=True)
class Percentile:
    """A latency percentile of about the last minute, from entry to the end of the answer."""

    seconds: float | None
    """None: too few requests were answered."""
    answers: float
    """Answered requests in the sample."""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """The sum of the engine metrics of the replicas that report them."""

    tokens: float
    """Prompt and generated tokens per second."""
    replicas: int
    """Replicas that report tokens."""
    waiting: float = 0.0
    """Requests in the engines' queues."""
    cache: float = 0.0
    """The highest KV cache utilisation of a replica, 0 to 1."""
    read_at: float = field(default=0.0, compare=False)
    """Monotonic seconds of the reading, which several decisions may see; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The observation of one target at one tick."""

    now: float
    """Unix seconds."""
    replicas: Replicas
    load: Load | None
    """None: no live gateway has provided a plausible new reading since the last tick."""
    gauges: Mapping[str, float] = field(default_factory=dict)
    """Values by metric name that gateways do not count: utilisation of one replica from 0 to 1, queued
    tokens, results of queries. A metric without an entry was not measured."""
    percentiles: Mapping[str, Percentile] = field(default_factory=dict)
    """By name of a metric of the type Latency. A metric without an entry was not measured."""
    engines: EngineLoad | None = None
    """None: no metric needs it, or no replica reports it."""
