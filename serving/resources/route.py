"""Route: the backends that the gateways serve for one Inference, written by its controller."""

from typing import Annotated, Literal

from pydantic import Field

from serving.resources.base import ATOMIC, Base, Conditions, Name, list_map, rules
from serving.resources.routing import AnswerTimeout, Ejection, Limits, Retries, Timeouts
from serving.resources.traffic_split import RING_UNITS


class RouteBackend(Base):
    """The Service of one revision of a predictor, reachable on the private listener even without weight."""

    name: Name
    arm: Name
    service: Name
    port: Annotated[int, Field(ge=1, le=65535)]
    model_version: str = ""
    protocol: Annotated[
        Literal["http", "h2c"],
        Field(description="The protocol of its replicas: HTTP/1.1, or HTTP/2 without TLS (and so gRPC)."),
    ] = "http"
    on_demand: Annotated[
        bool,
        Field(
            description="Keeps its share of traffic without a ready endpoint, as the activator holds its"
            " requests."
        ),
    ] = False
    autoscaler: Annotated[
        str, Field(description="Autoscaler in this namespace that learns of requests waiting for a replica.")
    ] = ""
    probe: Annotated[
        list[str],
        Field(
            max_length=8,
            description="Paths that each gateway GETs, or gRPC methods that it calls, until all succeed; set"
            " while the revision is not proven.",
            json_schema_extra=ATOMIC,
        ),
    ] = []
    timeouts: AnswerTimeout = AnswerTimeout()
    retries: Annotated[
        Retries,
        Field(description="Replaces the Route's retries for requests whose first try is at this backend."),
    ] = Retries()
    ejection: Ejection = Ejection()
    limits: Limits = Limits()


class RouteSegment(Base):
    """A run of units of the hash ring (1/10,000 each) that belongs to one backend.

    A backend may have several segments, so that a change of weights moves as few callers as possible.
    """

    backend: Name
    size: Annotated[int, Field(ge=1, le=RING_UNITS)]


class StickySpec(Base):
    """Callers are assigned to segments by the salted hash of this header."""

    header: str
    salt: str


class RouteSpec(Base):
    """One endpoint of the gateways. Segments are in ring order and sum to 10,000, or are empty (503)."""

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
    backends: Annotated[list[RouteBackend], Field(max_length=64, json_schema_extra=list_map("name"))] = []
    segments: Annotated[list[RouteSegment], Field(max_length=512, json_schema_extra=ATOMIC)] = []
    sticky: StickySpec | None = None
    token_usage: Annotated[
        Literal["none", "final", "continuous"],
        Field(
            description="How answers of OpenAI's API report numbers of tokens, which the gateway counts: not"
            " at all, at the end of a stream that asks for them, or with every part of it."
        ),
    ] = "none"
    timeouts: Timeouts = Timeouts()
    retries: Retries = Retries()


class EffectiveWeight(Base):
    """The share of traffic that a gateway sends to a predictor, in percent."""

    arm: str
    percent: float


class ProbeResult(Base):
    """The result of a gateway's probe of a backend."""

    backend: str
    message: Annotated[str, Field(description="The first failure; empty if every request succeeded.")] = ""


class GatewayStatus(Base):
    """The status of the Route at one gateway, written by that gateway alone."""

    name: str
    accepted_generation: Annotated[int, Field(description="Newest generation that Envoy has accepted.")] = 0
    address: Annotated[str, Field(description="host:port of the public listener.")] = ""
    weights: Annotated[list[EffectiveWeight], Field(json_schema_extra=list_map("arm"))] = []
    probes: Annotated[
        list[ProbeResult],
        Field(
            description="Results for the backends that have `probe` and a ready replica.",
            json_schema_extra=list_map("backend"),
        ),
    ] = []
    message: Annotated[str, Field(description="Why the newest generation was rejected.")] = ""


class RouteStatus(Base):
    """The status of the Route at each gateway."""

    gateways: Annotated[list[GatewayStatus], Field(json_schema_extra=list_map("name"))] = []
    conditions: Conditions = []
