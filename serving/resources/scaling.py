"""How one target is scaled: the fields that an Autoscaler and a predictor of an Inference have in common."""

from typing import Annotated, Literal

from pydantic import Field

from serving.resources.base import Base, Duration, Name, list_map, rules

_CRON_FIELD = "[0-9a-zA-Z*,/-]+"
_CRON = rf"^{_CRON_FIELD}( +{_CRON_FIELD}){{4}}$"
Cron = Annotated[
    str,
    Field(
        max_length=128,
        description="Minute, hour, day of month, month and day of week: `0 8 * * mon-fri` is 8:00 on working"
        " days.",
    ),
]

TimeZone = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$")]


def _cron_rule(field: str) -> tuple[str, str]:
    """Return the rule of a field with a cron expression: a CEL expression and its message."""
    return (
        f"!has(self.{field}) || self.{field}.matches('{_CRON}')",
        (
            f"{field} must have five fields: minute, hour, day of month, month and day of week,"
            " such as 0 8 * * mon-fri"
        ),
    )


_ZONE_MESSAGE = "timeZone must be in the IANA database, such as Europe/Berlin"
"""Message of the rules with `getHours`: CEL has no test for a time zone, but `getHours` of any time fails in
an unknown zone."""


class ScheduleSpec(Base):
    """Bounds that replace those of the spec from each start until the next end, or for a duration."""

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
            ("timestamp('2020-01-01T00:00:00Z').getHours(self.timeZone) >= 0", _ZONE_MESSAGE),
        ),
    }
    name: Name
    start: Cron
    end: Cron | None = None
    duration: Annotated[Duration | None, Field(description="Time from each start, instead of `end`.")] = None
    time_zone: Annotated[
        TimeZone,
        Field(description="IANA time zone of start and end, such as Europe/Berlin."),
    ] = "UTC"
    min_replicas: Annotated[
        int | None, Field(ge=0, le=1000, description="Replaces the bound of the spec.")
    ] = None
    max_replicas: Annotated[
        int | None, Field(ge=1, le=1000, description="Replaces the bound of the spec.")
    ] = None


class MetricSpec(Base):
    """A metric and its target. Of the numbers of replicas that the metrics need, the highest counts."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                # Latency has no default: the next rule requires its target.
                "self.type in ['QPS', 'Concurrency', 'TokensPerSecond', 'Latency'] || has(self.target)",
                (
                    "target is required, except for QPS, Concurrency and TokensPerSecond, whose default"
                    " is the capacity of a replica"
                ),
            ),
            (
                (
                    "self.type != 'Latency' || (has(self.target) && duration(string(self.target)) >"
                    " duration('0s'))"
                ),
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
                "resource (cpu, memory or gpu) is required for Utilization, and not allowed otherwise",
            ),
            (
                "(self.type == 'PromQL') == has(self.query)",
                "query is required for PromQL, and not allowed otherwise",
            ),
            ("self.type == 'PromQL' || !has(self.serverAddress)", "only PromQL has a serverAddress"),
        ),
    }
    type: Annotated[
        Literal[
            "QPS", "Concurrency", "Latency", "TokenQueueDepth", "TokensPerSecond", "Utilization", "PromQL"
        ],
        Field(
            description="QPS: arriving requests per second; Concurrency: requests in flight; Latency: from"
            " the request to the end of the response; TokenQueueDepth: tokens of prompts"
            " that are not read yet, and expected tokens of answers that are not generated yet;"
            " TokensPerSecond: arriving and generated tokens; Utilization: share of a replica's limit;"
            " PromQL: sum of the values of a query."
        ),
    ]
    name: Annotated[
        str,
        Field(
            max_length=63,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
            description="Distinguishes metrics of one type; required if there are several.",
        ),
    ] = ""
    target: Annotated[
        str | None,
        Field(
            max_length=32,
            pattern=r"^[0-9]+(\.[0-9]+)?(us|ms|s|m|h)?$",
            json_schema_extra={"x-kubernetes-int-or-string": True},
            description="Target per replica: requests per second, requests, tokens, tokens per second,"
            " percent, or the unit of the query; for Latency a duration. A number with a decimal point must"
            " be quoted. Default: the capacity of one replica, from a CapacityProfile or as learned.",
        ),
    ] = None
    percentile: Annotated[
        int | None,
        Field(
            ge=1, le=99, description="For Latency: percent of requests that must meet the target; default 99."
        ),
    ] = None
    resource: Annotated[
        Literal["cpu", "memory", "gpu"] | None, Field(description="For Utilization: the resource.")
    ] = None
    query: Annotated[
        str | None,
        Field(min_length=1, max_length=2048, description="For PromQL: the query, over all replicas."),
    ] = None
    server_address: Annotated[
        str | None,
        Field(
            max_length=512,
            pattern=r"^https?://[^ ]+$",
            description="For PromQL: URL of a Prometheus; default: the one in the autoscaler's"
            " configuration.",
        ),
    ] = None


class PaceSpec(Base):
    """Limits of changes in one direction; defaults follow from the cost of starting a replica."""

    max_replicas_per_minute: Annotated[
        int | None,
        Field(
            ge=1,
            le=1000,
            description="Replicas by which the count may change in a minute. Of this and maxPercentPerMinute,"
            " the limit that allows more replicas counts.",
        ),
    ] = None
    max_percent_per_minute: Annotated[
        int | None, Field(ge=1, le=10_000, description="The same limit, in percent of the replicas.")
    ] = None
    stabilization_seconds: Annotated[
        int | None,
        Field(ge=0, le=3600, description="Time for which a change in this direction must have been needed."),
    ] = None


class ScaleToZero(Base):
    """Scaling to zero and back, if minReplicas is 0."""

    idle_seconds: Annotated[
        int | None,
        Field(
            ge=1,
            le=7 * 24 * 3600,
            description="Time without a request after which the last replicas are removed. Default: learned"
            " from the intervals between requests and the cost of a start.",
        ),
    ] = None
    prewarm: Annotated[
        bool, Field(description="Starts a replica when a request is likely, before it arrives.")
    ] = True


class Behavior(Base):
    """Optional limits of changes; the defaults are adaptive."""

    scale_up: PaceSpec | None = None
    scale_down: PaceSpec | None = None
    scale_to_zero: ScaleToZero | None = None


class PredictionSpec(Base):
    """Use of the forecast."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                "!has(self.timeZone) || timestamp('2020-01-01T00:00:00Z').getHours(self.timeZone) >= 0",
                _ZONE_MESSAGE,
            ),
        ),
    }
    mode: Annotated[
        Literal["Enabled", "Observe", "Disabled"],
        Field(
            description="Enabled: replicas are started ahead of the load. Observe: decisions are reported in"
            " status, Events and metrics, and not carried out. Disabled: replicas follow the load."
        ),
    ] = "Enabled"
    time_zone: Annotated[
        TimeZone | None,
        Field(
            description="IANA time zone of the users, such as Europe/Berlin, so that daily patterns keep"
            " their shape when clocks change. Default: UTC."
        ),
    ] = None


class ScalingSpec(Base):
    """Bounds, schedules and metrics of the replica count; `minReplicas: 0, maxReplicas: 10` is enough."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                "!self.managed || self.minReplicas <= self.maxReplicas",
                "minReplicas must not be greater than maxReplicas",
            ),
            (
                (
                    "!has(self.schedules) || self.schedules.all(s, (has(s.minReplicas) ? s.minReplicas :"
                    " self.minReplicas) <= (has(s.maxReplicas) ? s.maxReplicas : self.maxReplicas))"
                ),
                (
                    "in a schedule minReplicas must not be greater than maxReplicas; a missing bound"
                    " is the spec's"
                ),
            ),
        ),
    }
    managed: Annotated[
        bool,
        Field(
            description="false: the count is the one that another autoscaler, such as a"
            " HorizontalPodAutoscaler or KEDA, writes to the scale subresource of the Autoscaler. Of the"
            " other fields only minReplicas limits the count."
        ),
    ] = True
    min_replicas: Annotated[
        int,
        Field(ge=0, le=1000, description="With 0, requests wait for a replica to start if there is none."),
    ] = 1
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    schedules: Annotated[
        list[ScheduleSpec],
        Field(
            max_length=16,
            description="Bounds at certain times. If several schedules are active, the highest of each bound"
            " counts.",
            json_schema_extra=list_map("name"),
        ),
    ] = []
    metrics: Annotated[
        list[MetricSpec],
        Field(
            max_length=8,
            description="Metrics to scale on; default: requests per second, with the capacity of a replica as"
            " target.",
            json_schema_extra=list_map("type", "name"),
        ),
    ] = []
    behavior: Behavior | None = None
    prediction: PredictionSpec = PredictionSpec()
    risk: Annotated[
        float | None,
        Field(
            ge=0.001,
            le=50,
            description="Percent of requests that may arrive while there is too little capacity: the"
            " trade-off between cost and violations. Lower is more expensive.",
            # For a value without a decimal point a cluster's API server cuts the bound to the integer 0
            # (kube-openapi 1.36): `ge` alone would admit 0.
            json_schema_extra=rules(("self >= 0.001", "must be at least 0.001")),
        ),
    ] = None

    @property
    def may_be_zero(self) -> bool:
        """Whether the target may ever have no replica."""
        return self.min_replicas == 0 or any(schedule.min_replicas == 0 for schedule in self.schedules)
