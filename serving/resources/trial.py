"""Trial: one spec, measured; written by the experiment's controller, its status by who measures."""

from typing import Annotated, Any, Literal

from pydantic import Field

from serving.resources.base import ATOMIC, Amount, Base, Conditions, Duration, Name, list_map, rules
from serving.resources.experiment import Constraint, Setting, as_open
from serving.resources.load import Load

Reason = Literal[
    "Measured", "CannotBeatBest", "BreaksConstraint", "OutOfMemory", "Crashed", "NotReady", "Refused", "TimedOut",
    "LoadFailed", "Interrupted", "",
]  # fmt: skip
"""Why a trial ended. The first three have measurements; the next five are results too: this spec does not run;
the last two say nothing of the spec, and the trial is made again."""


FINISHED = ("Succeeded", "Failed")
"""Phases in which a Trial, or a ProfilingExperiment, changes no more."""


class TrialSpec(Base):
    """One spec to measure; immutable."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(("self == oldSelf", "a Trial is immutable: the experiment makes another")),
    }
    experiment: Name
    number: Annotated[
        int, Field(ge=1, description="Of the experiment's trials, in the order of their creation.")
    ]
    purpose: Annotated[
        Literal["Explore", "Confirm", "Baseline"],
        Field(
            description="Confirm measures the winner or the runner-up again; Baseline the spec that runs today."
        ),
    ] = "Explore"
    settings: Annotated[list[Setting], Field(json_schema_extra=list_map("category", "name"))] = []
    template: Annotated[
        dict[str, Any], Field(description="The Pod template, whole.", json_schema_extra=as_open())
    ]
    model_name: Annotated[str, Field(description="As clients of the trial call the model.")]
    model_version: str = ""
    model_digest: str = ""
    cost_per_hour: float = 0
    batch: Annotated[int, Field(ge=1, description="Items in one request.")] = 1
    load: Load = Load()
    constraints: Annotated[list[Constraint], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    progress_deadline: Duration = "120s"
    seed: int = 0
    stop_below_throughput: Annotated[
        Amount | None, Field(description="Requests per second below which this spec cannot beat the best.")
    ] = None


class Estimate(Base):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


class LatencyAt(Base):
    """One percentile of a latency, in seconds."""

    metric: Literal["latency", "ttft", "itl"]
    percentile: int
    value: float
    low: float
    high: float


class Usage(Base):
    """Of the replica, over a window."""

    cpu_cores: Annotated[float, Field(description="Average.")] = 0
    cpu_throttled: Annotated[
        float, Field(description="Share of the time in which it was held back by its limit.")
    ] = 0
    memory_bytes: Annotated[int, Field(description="Highest, with shared pages.")] = 0
    gpu_utilization: Annotated[float, Field(description="Average share of the GPU's time.")] = 0
    gpu_memory_bytes: int = 0
    generator_cpu: Annotated[
        float, Field(description="Share of its own cores that the load generator used.")
    ] = 0


class Window(Base):
    """What was seen at one level of load."""

    level: Annotated[float, Field(description="Users, or requests per second.")]
    start_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""
    seconds: float = 0
    requests: int = 0
    errors: int = 0
    throughput: Estimate
    latencies: Annotated[list[LatencyAt], Field(json_schema_extra=ATOMIC)] = []
    tokens_per_second: float = 0
    error_rate: Estimate
    usage: Usage = Usage()
    steady: Annotated[bool, Field(description="No trend was left.")] = True
    generator_limited: Annotated[
        bool, Field(description="The load generator, not the target, was the limit.")
    ] = False
    meets: Annotated[Literal["Yes", "No", "Unsure"], Field(description="The constraints.")] = "Unsure"
    scatter: Annotated[
        float | None,
        Field(
            description="Of a result: standard deviation, as a logarithm, of the limited latencies from one whole window to the next."
        ),
    ] = None


class TrialStatus(Base):
    """How far the measurement is, and what it found."""

    phase: Literal["Pending", "Starting", "WarmingUp", "Measuring", "Succeeded", "Failed", ""] = ""
    reason: Reason = ""
    message: str = ""
    windows: Annotated[list[Window], Field(json_schema_extra=ATOMIC)] = []
    result: Annotated[
        Window | None,
        Field(
            description="The highest load that meets the constraints another time too, or the fewest users who give as much, as all windows"
            " together say; where the lowest load breaks a constraint surely, its window."
        ),
    ] = None
    notes: Annotated[
        list[str],
        Field(
            json_schema_extra=ATOMIC,
            description="What is worth knowing: GeneratorLimited, NotSteady, LimitNotEnforced: ...",
        ),
    ] = []
    machine: Annotated[str, Field(description="What it was measured on: processor, cores, GPU.")] = ""
    restarts: int = 0
    start_seconds: Annotated[float, Field(description="From the Deployment to ready.")] = 0
    seconds: Annotated[float, Field(description="In all.")] = 0
    start_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""
    completion_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""
    observed_generation: int = 0
    conditions: Conditions = []
