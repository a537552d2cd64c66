"""Route: what the Inference controller asks of the gateways."""

from typing import Annotated

from pydantic import Field

from serving.resources.base import ATOMIC, Base, Conditions, Name, list_map, rules


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
