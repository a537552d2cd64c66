"""Route and Autoscaler: what the Inference controller asks of the gateways and of scaling."""

from typing import Annotated

from pydantic import Field

from serving.resources.base import Base, Conditions, Name, list_map, rules


class Backend(Base):
    """One revision of one predictor: a Service, reachable on the gateways' private listener before it has weight."""

    name: Name
    arm: Name
    service: Name
    port: Annotated[int, Field(ge=1, le=65535)]
    model_version: str = ""


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
    segments: Annotated[
        list[Segment], Field(max_length=512, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = []
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
    """How one target is sized; for now a fixed count, min = max or the bounds nearest to what it has."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            ("self.minReplicas <= self.maxReplicas", "minReplicas must not be greater than maxReplicas")
        ),
    }
    scale_target_ref: ScaleTarget
    min_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = 1


class AutoscalerStatus(Base):
    """What was decided last, and why."""

    desired_replicas: int = 0
    current_replicas: int = 0
    reason: str = ""
    last_scale_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    observed_generation: int = 0
    conditions: Conditions = []
