"""What an Autoscaler says of itself: the last decisions, what they were made of, and who asks for its target."""

from typing import Annotated, Literal

from pydantic import Field

from serving.resources.base import ATOMIC, Base, Conditions, list_map

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class Phase(Base):
    """A part of a wake, in the order in which they follow on each other."""

    name: str
    milliseconds: float


class Wake(Base):
    """Where the time went between a request that found no replica and its release to the first one."""

    pod: str
    accepted_at: Time
    phases: Annotated[
        list[Phase],
        Field(description="They add up to the total.", json_schema_extra=ATOMIC),
    ] = []
    total: Annotated[float, Field(description="Milliseconds.")]


class Demand(Base):
    """What one activator knows of the requests that wait for the target: written by that reporter alone."""

    reporter: Annotated[str, Field(description="`activator-<gateway>`: the activator beside that gateway.")]
    in_flight: Annotated[
        int,
        Field(description="Requests that wait now."),
    ] = 0
    last_request_time: Time | None = None
    last_wake: Wake | None = None


class Forecast(Base):
    """The highest rate of arriving work that is expected within a horizon."""

    horizon_seconds: float
    lower: Annotated[float, Field(description="Work per second: the 10 % quantile.")]
    median: float
    upper: Annotated[float, Field(description="The quantile that `risk` asks for: it is sized on.")]


class DecisionInputs(Base):
    """What the last decision was made of, as of its time; it is not written again while nothing follows from it."""

    time: Time
    rule: Annotated[str, Field(description="That bound the count, in CamelCase.")] = ""
    metric: Annotated[str, Field(description="That asked for the most replicas.")] = ""
    needed: Annotated[int, Field(description="Replicas that the load asks for, before every limit.")] = 0
    rate: Annotated[float, Field(description="Work per second now.")] = 0
    capacity: Annotated[float, Field(description="Work per second of one replica; 0: not known.")] = 0
    backlog: Annotated[float, Field(description="Requests that wait beyond what replicas work on.")] = 0
    startup_seconds: Annotated[float, Field(description="That a start is expected to take.")] = 0
    forecast: Forecast | None = None
    schedule: Annotated[str, Field(description="That the bounds come from; empty: the ordinary ones.")] = ""


class Change(Base):
    """A decision that changed the count."""

    time: Time
    from_replicas: int
    to_replicas: int
    reason: Annotated[str, Field(description="The rule that bound, in CamelCase.")]
    message: str = ""


class MetricStatus(Base):
    """What one metric is now, and asks for."""

    name: Annotated[str, Field(description="Its type, or `type/name`.")]
    target: Annotated[
        float | None,
        Field(
            description="Of the spec, for each replica; of Latency seconds. Left out: what a replica takes."
        ),
    ] = None
    value: Annotated[float | None, Field(description="Now; left out where it is not measured.")] = None
    needed: Annotated[
        int | None, Field(description="Replicas that it asks for; left out where it holds those there are.")
    ] = None
    message: Annotated[str, Field(description="What that follows from, or why it does not count.")] = ""


class Signal(Base):
    """One source of what is known: a gateway, the replicas' pages, a Prometheus."""

    source: Annotated[str, Field(description="`gateway-<name>`, `replicas`, `resources`, `prometheus`.")]
    healthy: bool
    message: Annotated[str, Field(description="What is wrong with it, and since when.")] = ""


class LearnedCapacity(Base):
    """What one replica can take."""

    rate: Annotated[float, Field(description="Work per second.")] = 0
    concurrency: Annotated[float, Field(description="Requests in flight at that rate.")] = 0
    source: Annotated[
        Literal["Profile", "Corrected", "Target", "Learned"],
        Field(
            description="A CapacityProfile, the same corrected by what replicas carried, a metric's target, or load and"
            " latency as they were."
        ),
    ]


class LearnedScaling(Base):
    """What is known of the target; left out: nothing yet."""

    capacity: LearnedCapacity | None = None
    startup_seconds: Annotated[
        float | None, Field(description="A high quantile of the starts so far, failed ones included.")
    ] = None
    keep_alive_seconds: Annotated[
        float | None, Field(description="Without a request for this long, the last replicas go.")
    ] = None


class AutoscalerStatus(Base):
    """What was decided last, and why."""

    desired_replicas: int = 0
    current_replicas: int = 0
    ready_replicas: int = 0
    reason: Annotated[str, Field(description="One sentence: why the count is what it is.")] = ""
    last_scale_time: Time | None = None
    decision: DecisionInputs | None = None
    decisions: Annotated[
        list[Change],
        Field(
            max_length=10,
            description="The last ten that changed the count, the newest first.",
            json_schema_extra=ATOMIC,
        ),
    ] = []
    metrics: Annotated[list[MetricStatus], Field(json_schema_extra=list_map("name"))] = []
    learned: LearnedScaling | None = None
    signals: Annotated[list[Signal], Field(json_schema_extra=list_map("source"))] = []
    observed_generation: int = 0
    demand: Annotated[list[Demand], Field(json_schema_extra=list_map("reporter"))] = []
    conditions: Conditions = []
