"""Route and Autoscaler: what the Inference controller asks of the gateways and of scaling."""

from typing import Annotated

from pydantic import Field

from serving.resources.base import ATOMIC, Base, Conditions, Name, list_map, rules

IDLE_SECONDS = 60
"""Without a request for this long, a predictor whose minReplicas is 0 loses its replicas. Shorter, and a person who
reads an answer before asking again waits for a start each time; longer, and what idles costs memory for nothing."""
IdleTimeout = Annotated[
    int,
    Field(
        ge=1,
        le=7 * 24 * 3600,
        description="Seconds without a request after which the last replicas go, where minReplicas is 0.",
    ),
]


class Backend(Base):
    """One revision of one predictor: a Service, reachable on the gateways' private listener before it has weight."""

    name: Name
    arm: Name
    service: Name
    port: Annotated[int, Field(ge=1, le=65535)]
    model_version: str = ""
    on_demand: Annotated[
        bool, Field(description="Keeps its share without a ready endpoint: the activator holds its requests.")
    ] = False
    autoscaler: Annotated[
        str, Field(description="Of this namespace: who is told of requests that wait for a replica.")
    ] = ""


class Segment(Base):
    """A stretch of the hash ring, in units of 1/10,000, given to one backend.

    An arm may own several stretches: that is how a change of weights moves no caller that need not move.
    """

    backend: Name
    size: Annotated[int, Field(ge=1, le=10_000)]


class StickySpec(Base):
    """Hash this header, salted, onto the segments."""

    header: str
    salt: str


class RouteSpec(Base):
    """One endpoint, as the gateways see it. Segments are in ring order and sum to 10,000 (or are empty: 503)."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                (
                    "!has(self.segments) || (has(self.backends) && "
                    "self.segments.all(s, self.backends.exists(b, b.name == s.backend)))"
                ),
                "every segment's backend must be one of backends",
            )
        ),
    }
    inference: Name
    backends: Annotated[list[Backend], Field(max_length=64, json_schema_extra=list_map("name"))] = []
    segments: Annotated[list[Segment], Field(max_length=512, json_schema_extra=ATOMIC)] = []
    sticky: StickySpec | None = None


class EffectiveWeight(Base):
    """What a gateway really sends to an arm, in percent."""

    arm: str
    percent: float


class GatewayStatus(Base):
    """What one gateway says: written by that gateway alone."""

    name: str
    accepted_generation: Annotated[
        int, Field(description="The newest generation that Envoy has accepted.")
    ] = 0
    address: Annotated[str, Field(description="host:port of the public listener.")] = ""
    weights: Annotated[list[EffectiveWeight], Field(json_schema_extra=list_map("arm"))] = []
    message: Annotated[str, Field(description="Why the newest generation was rejected.")] = ""


class RouteStatus(Base):
    """One entry per gateway."""

    gateways: Annotated[list[GatewayStatus], Field(json_schema_extra=list_map("name"))] = []
    conditions: Conditions = []


class ScaleTarget(Base):
    """Anything of this namespace with a scale subresource."""

    api_version: str = "apps/v1"
    kind: str = "Deployment"
    name: Name


class AutoscalerSpec(Base):
    """How one target is sized: within bounds; with a minimum of 0, to zero while it is idle and back on demand."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            ("self.minReplicas <= self.maxReplicas", "minReplicas must not be greater than maxReplicas")
        ),
    }
    scale_target_ref: ScaleTarget
    min_replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    idle_timeout_seconds: IdleTimeout = IDLE_SECONDS


class Phase(Base):
    """A part of a wake, in the order in which they follow on each other."""

    name: str
    milliseconds: float


class Wake(Base):
    """Where the time went between a request that found no replica and its release to the first one."""

    pod: str
    accepted_at: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    phases: Annotated[
        list[Phase],
        Field(description="They add up to the total.", json_schema_extra=ATOMIC),
    ] = []
    total: Annotated[float, Field(description="Milliseconds.")]


class Demand(Base):
    """What one gateway or activator knows of the requests to the target: written by that reporter alone."""

    reporter: Annotated[
        str, Field(description="`activator-<gateway>` of requests that are held, `gateway-<name>`.")
    ]
    in_flight: Annotated[
        int,
        Field(
            description="Of an activator: requests that wait now. Of a gateway: above 0 while there is traffic."
        ),
    ] = 0
    last_request_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    last_wake: Wake | None = None


class AutoscalerStatus(Base):
    """What was decided last, and why."""

    desired_replicas: int = 0
    current_replicas: int = 0
    reason: str = ""
    last_scale_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    observed_generation: int = 0
    demand: Annotated[list[Demand], Field(json_schema_extra=list_map("reporter"))] = []
    conditions: Conditions = []
