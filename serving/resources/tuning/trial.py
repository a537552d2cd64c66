"""Trial: one measured spec. The experiment controller creates it; the Trial controller writes its status."""

from typing import Annotated, Any, Literal

from pydantic import Field

from serving.resources.base import ATOMIC, Amount, Base, Conditions, Duration, Name, list_map, rules
from serving.resources.tuning.experiment import Constraint, Setting
from serving.resources.tuning.load import ExperimentLoad

Reason = Literal[
    "Measured",
    "CannotBeatBest",
    "BreaksConstraint",
    "OutOfMemory",
    "Crashed",
    "NotReady",
    "Refused",
    "TimedOut",
    "LoadFailed",
    "Interrupted",
    "",
]
"""Why a trial ended. The first three have measurements. The next five are results too: the spec does not run.
After `LoadFailed` and `Interrupted`, which do not depend on the spec, the spec may be measured again. Empty:
the trial has not ended."""

FINISHED = ("Succeeded", "Failed")
"""Phases in which a Trial changes no more, and a ProfilingExperiment only after a change of its spec."""
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""The schema of an object whose unknown fields are kept."""


class TrialSpec(Base):
    """One spec to measure; immutable."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            ("self == oldSelf", "a Trial is immutable: the experiment creates another")
        ),
    }
    experiment: Name
    number: Annotated[int, Field(ge=1, description="Number within the experiment, in order of creation.")]
    purpose: Annotated[
        Literal["Explore", "Confirm", "Baseline"],
        Field(
            description="Confirm measures the winner or the runner-up again; Baseline measures the current"
            " spec."
        ),
    ] = "Explore"
    settings: Annotated[list[Setting], Field(json_schema_extra=list_map("category", "name"))] = []
    template: Annotated[
        dict[str, Any], Field(description="The complete Pod template.", json_schema_extra=_OPEN)
    ]
    model_name: Annotated[str, Field(description="The model's name for clients of the trial.")]
    model_version: str = ""
    model_digest: str = ""
    cost_per_hour: Annotated[
        float, Field(description="Hourly cost of the replica, in the currency of the prices.")
    ] = 0
    batch: Annotated[int, Field(ge=1, description="Rows in one request.")] = 1
    load: ExperimentLoad = ExperimentLoad()
    constraints: Annotated[list[Constraint], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    objective_percentile: Annotated[
        int | None,
        Field(ge=1, le=99, description="If the experiment's objective is a latency: its percentile."),
    ] = None
    progress_deadline: Annotated[
        Duration, Field(description="Time within which the replica must be ready.")
    ] = "120s"
    seed: Annotated[int, Field(description="Seed of the random numbers of the load.")] = 0
    stop_below_throughput: Annotated[
        Amount | None, Field(description="Requests per second below which this spec cannot be the best.")
    ] = None


class Estimate(Base):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


class LatencyAt(Base):
    """One percentile of a latency with its 95 % interval, in seconds.

    `latency` is until the end of the answer, `ttft` until its first token, `itl` between its tokens.
    """

    metric: Literal["latency", "ttft", "itl"]
    percentile: int
    value: float
    low: float
    high: float


class Usage(Base):
    """Resource usage of the replica over a window."""

    cpu_cores: Annotated[float, Field(description="Average processor cores.")] = 0
    cpu_throttled: Annotated[float, Field(description="Share of time in which the limit throttled it.")] = 0
    memory_bytes: Annotated[int, Field(description="Peak memory, including shared pages.")] = 0
    gpu_utilization: Annotated[float, Field(description="Average utilization of the GPU, 0 to 1.")] = 0
    gpu_memory_bytes: int = 0
    generator_cpu: Annotated[float, Field(description="Share of its cores that the load generator used.")] = 0


class Window(Base):
    """Measurements at one level of load."""

    level: Annotated[float, Field(description="Users, or requests per second.")]
    start_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""
    seconds: float = 0
    requests: int = 0
    errors: int = 0
    throughput: Annotated[Estimate, Field(description="Answers per second.")]
    latencies: Annotated[list[LatencyAt], Field(json_schema_extra=ATOMIC)] = []
    tokens_per_second: Annotated[float, Field(description="Generated tokens.")] = 0
    prompt_tokens_per_second: Annotated[
        float, Field(description="Prompt tokens, by the usage in answers; 0 unless every answer has it.")
    ] = 0
    error_rate: Annotated[Estimate, Field(description="Share of failed requests, 0 to 1.")]
    usage: Usage = Usage()
    steady: Annotated[bool, Field(description="Whether neither throughput nor latency has a trend.")] = True
    generator_limited: Annotated[
        bool, Field(description="Whether the load generator, not the target, was the limit.")
    ] = False
    meets: Annotated[
        Literal["Yes", "No", "Unsure"], Field(description="Whether the constraints are met.")
    ] = "Unsure"
    kept_up: Annotated[
        bool | None,
        Field(description="With load of mode open: whether the answers kept up with the requests."),
    ] = None
    scatter: Annotated[
        float | None,
        Field(
            description="Only in a result: standard deviation of the logarithm of the constrained latencies"
            " between complete windows."
        ),
    ] = None


class TrialStatus(Base):
    """Progress and results of the measurement."""

    phase: Literal["Pending", "Starting", "WarmingUp", "Measuring", "Succeeded", "Failed", ""] = ""
    reason: Reason = ""
    message: str = ""
    windows: Annotated[list[Window], Field(json_schema_extra=ATOMIC)] = []
    result: Annotated[
        Window | None,
        Field(
            description="Estimate from all windows at the highest load that meets the constraints repeatedly,"
            " or at the fewest users with the same throughput. If even the lowest load breaks a constraint:"
            " its window."
        ),
    ] = None
    notes: Annotated[
        list[str],
        Field(
            json_schema_extra=ATOMIC,
            description="Remarks: GeneratorLimited, NotSteady, LimitNotEnforced and others.",
        ),
    ] = []
    machine: Annotated[str, Field(description="Machine of the measurement: processor, cores, GPU.")] = ""
    restarts: Annotated[int, Field(description="Restarts of the replica's containers.")] = 0
    start_seconds: Annotated[
        float, Field(description="Time from creating the Deployment until it was ready.")
    ] = 0
    seconds: Annotated[float, Field(description="Total duration.")] = 0
    start_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""
    completion_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""
    observed_generation: int = 0
    conditions: Conditions = []
