"""CapacityProfile: latency and throughput of one replica by load, as measured."""

from typing import Annotated, Literal

from pydantic import Field

from serving.resources.base import ATOMIC, Base, Name, list_map, rules
from serving.resources.tuning.experiment import Setting
from serving.resources.tuning.trial import LatencyAt, Usage


class CapacityPoint(Base):
    """One replica at one level of load."""

    level: Annotated[float, Field(description="Users, or requests per second.")]
    throughput: Annotated[float, Field(description="Responses per second.")]
    latencies: Annotated[list[LatencyAt], Field(json_schema_extra=ATOMIC)] = []
    tokens_per_second: Annotated[float, Field(description="Generated tokens.")] = 0
    prompt_tokens_per_second: Annotated[float, Field(description="Prompt tokens; 0 if unknown.")] = 0
    usage: Usage = Usage()


class CapacityProfileSpec(Base):
    """A measured curve; immutable, as a newer measurement is another profile."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            ("self == oldSelf", "a CapacityProfile is immutable: a newer measurement is another profile")
        ),
    }
    model_digest: str
    model_version: str = ""
    machine: Annotated[str, Field(description="Machine of the measurement: processor, cores, GPU.")] = ""
    settings: Annotated[list[Setting], Field(json_schema_extra=list_map("category", "name"))] = []
    mode: Annotated[
        Literal["closed", "open"],
        Field(description="Unit of the levels: closed, users; open, requests per second."),
    ] = "closed"
    batch: Annotated[int, Field(description="Rows in one request.")] = 1
    points: Annotated[list[CapacityPoint], Field(min_length=1, max_length=256, json_schema_extra=ATOMIC)]
    capacity: Annotated[
        float,
        Field(description="Requests per second at the highest load that meets the constraints."),
    ] = 0
    measured_at: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""
    trial: Name | None = None
    experiment: Name | None = None
