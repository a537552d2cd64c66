"""Autoscaler: how one target is sized; an Inference's predictors are asked in the same words."""

from typing import Annotated, Literal

from pydantic import Field

from serving.resources.base import ATOMIC, Base, Conditions, Duration, Name, list_map, rules

_CRON_FIELD = "[0-9a-zA-Z*,/-]+"
_CRON = rf"^{_CRON_FIELD}( +{_CRON_FIELD}){{4}}$"
Cron = Annotated[
    str,
    Field(
        max_length=128,
        description="Minute, hour, day of month, month and day of week: `0 8 * * mon-fri` is 8:00 on working days.",
    ),
]

TimeZone = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$")]


def _cron_rule(field: str) -> tuple[str, str]:
    return (
        f"!has(self.{field}) || self.{field}.matches('{_CRON}')",
        f"{field} must have five fields: minute, hour, day of month, month and day of week, such as 0 8 * * mon-fri",
    )


_ZONE_RULE = "timeZone must be in the IANA database, such as Europe/Berlin"


class Schedule(Base):
    """Bounds that replace the ordinary ones from each start until the next end, or for a while."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            ("has(self.end) != has(self.duration)", "give one of end and duration"),
            _cron_rule("start"),
            _cron_rule("end"),
            ("!has(self.end) || self.end != self.start", "end must not be the same as start"),
            ("!has(self.duration) || duration(self.duration) > duration('0s')", "duration must be above 0"),
            (
                "has(self.minReplicas) || has(self.maxReplicas)",
                "a schedule needs minReplicas, maxReplicas or both",
            ),
            ("timestamp('2020-01-01T00:00:00Z').getHours(self.timeZone) >= 0", _ZONE_RULE),
        ),
    }
    name: Name
    start: Cron
    end: Cron | None = None
    duration: Annotated[Duration | None, Field(description="How long from each start, instead of `end`.")] = (
        None
    )
    time_zone: Annotated[
        TimeZone,
        Field(description="Of the IANA database, such as Europe/Berlin; start and end are its local times."),
    ] = "UTC"
    min_replicas: Annotated[int | None, Field(ge=0, le=1000, description="Instead of spec's.")] = None
    max_replicas: Annotated[int | None, Field(ge=1, le=1000, description="Instead of spec's.")] = None


class Metric(Base):
    """One reason for replicas. Each says how many it needs; the most of them are started."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                "self.type in ['QPS', 'Concurrency', 'TokensPerSecond', 'Latency'] || has(self.target)",
                "target is required: only QPS, Concurrency and TokensPerSecond can do without, by the capacity of a replica",
            ),
            (
                "self.type != 'Latency' || (has(self.target) && duration(string(self.target)) > duration('0s'))",
                "the target of Latency is required: a duration above 0, such as 250ms",
            ),
            (
                "self.type == 'Latency' || !has(self.target) || double(self.target) > 0.0",
                "target must be a number above 0; only that of Latency is a duration",
            ),
            (
                "self.type != 'Utilization' || !has(self.target) || double(self.target) <= 100.0",
                "the target of Utilization is percent: at most 100",
            ),
            ("self.type == 'Latency' || !has(self.percentile)", "only Latency has a percentile"),
            (
                "(self.type == 'Utilization') == has(self.resource)",
                "Utilization needs a resource (cpu, memory or gpu), and nothing else has one",
            ),
            ("(self.type == 'PromQL') == has(self.query)", "PromQL needs a query, and nothing else has one"),
            ("self.type == 'PromQL' || !has(self.serverAddress)", "only PromQL has a serverAddress"),
        ),
    }
    type: Annotated[
        Literal[
            "QPS", "Concurrency", "Latency", "TokenQueueDepth", "TokensPerSecond", "Utilization", "PromQL"
        ],
        Field(
            description="QPS: arriving requests per second; Concurrency: requests in flight; Latency: from entry to the end of the"
            " answer, met by sizing; TokenQueueDepth: prompt tokens that wait; TokensPerSecond: arriving and generated"
            " tokens; Utilization: of what a replica may use; PromQL: the sum of a query's values."
        ),
    ]
    name: Annotated[
        str,
        Field(
            max_length=63,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
            description="Tells metrics of one type apart; needed where there are several.",
        ),
    ] = ""
    target: Annotated[
        str | None,
        Field(
            max_length=32,
            pattern=r"^[0-9]+(\.[0-9]+)?(us|ms|s|m|h)?$",
            json_schema_extra={"x-kubernetes-int-or-string": True},
            description="For each replica: requests per second, requests, tokens, tokens per second, percent, or the query's"
            " unit; of Latency a duration. A number with a decimal point is quoted. Left out: what one replica can take, as a"
            " CapacityProfile says or as it is learned.",
        ),
    ] = None
    percentile: Annotated[
        int | None, Field(ge=1, le=99, description="Of Latency: of the requests that must meet it; else 99.")
    ] = None
    resource: Annotated[Literal["cpu", "memory", "gpu"] | None, Field(description="Of Utilization.")] = None
    query: Annotated[
        str | None, Field(min_length=1, max_length=2048, description="Of PromQL: all replicas together.")
    ] = None
    server_address: Annotated[
        str | None,
        Field(
            max_length=512,
            pattern=r"^https?://[^ ]+$",
            description="Of PromQL: a Prometheus; else the one that the autoscaler is configured with.",
        ),
    ] = None


class Pace(Base):
    """How fast the count may change in one direction; what is left out is found from what a start costs."""

    max_replicas_per_minute: Annotated[
        int | None,
        Field(
            ge=1,
            le=1000,
            description="With maxPercentPerMinute, what allows more replicas holds.",
        ),
    ] = None
    max_percent_per_minute: Annotated[int | None, Field(ge=1, le=10_000, description="Of the replicas.")] = (
        None
    )
    stabilization_seconds: Annotated[
        int | None,
        Field(ge=0, le=3600, description="For so long a change in this direction must have been wanted."),
    ] = None


class ScaleToZero(Base):
    """How the last replicas go and the first ones come, where minReplicas is 0."""

    idle_seconds: Annotated[
        int | None,
        Field(
            ge=1,
            le=7 * 24 * 3600,
            description="Without a request for this long, the last replicas go. Left out: learned from the times between requests"
            " and from what a start costs.",
        ),
    ] = None
    prewarm: Annotated[
        bool, Field(description="Start a replica when a request is likely, before it is there.")
    ] = True


class Behavior(Base):
    """Limits to how the count changes, for who has a reason; the defaults need none."""

    scale_up: Pace | None = None
    scale_down: Pace | None = None
    scale_to_zero: ScaleToZero | None = None


class Prediction(Base):
    """What is made of the forecast."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                "!has(self.timeZone) || timestamp('2020-01-01T00:00:00Z').getHours(self.timeZone) >= 0",
                _ZONE_RULE,
            ),
        ),
    }
    mode: Annotated[
        Literal["Enabled", "Observe", "Disabled"],
        Field(
            description="Enabled: replicas are started before the load. Observe: what would be done is said in status, Events and"
            " metrics, and not done. Disabled: replicas follow the load."
        ),
    ] = "Enabled"
    time_zone: Annotated[
        TimeZone | None,
        Field(
            description="Of the IANA database, such as Europe/Berlin: where those live who ask, so that the load of a day keeps its"
            " shape when clocks change. UTC where left out."
        ),
    ] = None


class Scaling(Base):
    """What can be asked of a replica count; `minReplicas: 0, maxReplicas: 10` alone is enough."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            ("self.minReplicas <= self.maxReplicas", "minReplicas must not be greater than maxReplicas"),
            (
                (
                    "!has(self.schedules) || self.schedules.all(s, (has(s.minReplicas) ? s.minReplicas : self.minReplicas)"
                    " <= (has(s.maxReplicas) ? s.maxReplicas : self.maxReplicas))"
                ),
                "in schedules too minReplicas must not be greater than maxReplicas: what one leaves out is as outside it",
            ),
        ),
    }
    min_replicas: Annotated[
        int, Field(ge=0, le=1000, description="With 0, requests that find no replica wait for one to start.")
    ] = 1
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    schedules: Annotated[
        list[Schedule],
        Field(
            max_length=16,
            description="Bounds at certain times. Of several that hold, the highest of each bound counts.",
            json_schema_extra=list_map("name"),
        ),
    ] = []
    metrics: Annotated[
        list[Metric],
        Field(
            max_length=8,
            description="Without any: requests per second, by what a replica can take.",
            json_schema_extra=list_map("type", "name"),
        ),
    ] = []
    behavior: Behavior | None = None
    prediction: Prediction = Prediction()
    risk: Annotated[
        float | None,
        Field(
            ge=0.001,
            le=50,
            description="Percent of requests that may come while there is too little capacity: the one knob between cost and"
            " violations. Less is dearer.",
        ),
    ] = None

    @property
    def may_be_zero(self) -> bool:
        """Whether there are times without a replica."""
        return self.min_replicas == 0 or any(found.min_replicas == 0 for found in self.schedules)


class ScaleTarget(Base):
    """Anything of this namespace with a scale subresource."""

    api_version: Annotated[str, Field(min_length=1, max_length=253)] = "apps/v1"
    kind: Annotated[str, Field(min_length=1, max_length=63)] = "Deployment"
    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]


class AutoscalerSpec(Scaling):
    """How one target is sized: to the work that arrives, before it arrives; to zero and back where minReplicas is 0."""

    scale_target_ref: ScaleTarget


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
