"""ProfilingExperiment: a search for the cheapest spec that meets an objective; Morphling's field names where it has them.

https://github.com/kubedl-io/morphling/blob/main/api/v1alpha1/profilingexperiment_types.go
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from serving.resources.base import (
    ATOMIC,
    Amount,
    Base,
    Conditions,
    Duration,
    Name,
    Quantity,
    list_map,
    rules,
)
from serving.resources.inference import Framework, PredictorTemplate, Resources
from serving.resources.load import Load

Category = Literal["resource", "batching", "env", "args"]
Value = Annotated[str, Field(max_length=256, json_schema_extra={"x-kubernetes-int-or-string": True})]
"""A value of a parameter, as it is put in."""


class Target(Base):
    """What is tuned: a predictor of an Inference as it runs, or a ModelVersion."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            ("has(self.inference) != has(self.modelVersion)", "give either inference or modelVersion"),
            ("!has(self.modelVersion) || has(self.framework)", "a modelVersion needs a framework"),
            ("!has(self.predictor) || has(self.inference)", "predictor names one of an inference"),
            (
                "!has(self.framework) || has(self.modelVersion)",
                "framework goes with modelVersion; an inference has its own",
            ),
            (
                "!has(self.resources) || has(self.modelVersion)",
                "resources go with modelVersion; an inference's predictor has its own",
            ),
            (
                "!has(self.template) || has(self.modelVersion)",
                "template goes with modelVersion; an inference's predictor has its own",
            ),
            (
                (
                    "!has(self.framework) || self.framework != 'custom' || (has(self.template) && "
                    "has(self.template.containers) && self.template.containers.exists(c, c.name == 'predictor'))"
                ),
                "framework custom needs a container named predictor in the template",
            ),
        ),
    }
    inference: Name | None = None
    predictor: Annotated[
        Name | None, Field(description="Of the Inference; its only one where it has one.")
    ] = None
    model_version: Name | None = None
    framework: Framework | None = None
    resources: Annotated[
        Resources | None,
        Field(description="Of a replica, as in a predictor; what is tuned replaces it."),
    ] = None
    template: Annotated[
        PredictorTemplate | None,
        Field(description="What the Pods have besides the runtime, as in a predictor."),
    ] = None


class FeasibleSpace(Base):
    """The values of one parameter: a list, a range with a step, or powers."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                (
                    "has(self.list) && self.list.size() > 0"
                    " ? !has(self.min) && !has(self.max) && !has(self.step) && !has(self.factor)"
                    " : has(self.min) && has(self.max) && has(self.step) != has(self.factor)"
                ),
                "give either list, or min and max with one of step and factor",
            ),
            ("!has(self.factor) || double(self.factor) > 1.0", "factor must be greater than 1"),
        ),
    }
    values: Annotated[
        list[Value],
        Field(
            alias="list",
            max_length=256,
            description="The values, in any order; one with a decimal point is quoted.",
            json_schema_extra=ATOMIC,
        ),
    ] = []
    min: Quantity | None = None
    max: Quantity | None = None
    step: Annotated[Quantity | None, Field(description="min, min + step, ... up to max.")] = None
    factor: Annotated[
        Amount | None, Field(description="min, min x factor, ... up to max: `2` for powers of two.")
    ] = None


class Parameter(Base):
    """One axis of the space."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                (
                    "self.parameterType != 'categorical' || (has(self.feasibleSpace.list) && "
                    "self.feasibleSpace.list.size() > 0 && self.scale == '')"
                ),
                "categorical values are given as a list, and have no scale",
            ),
        ),
    }
    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=128,
            description="A resource (cpu, memory, gpu.memory, gpu.cores), an environment variable, an argument such as --threads,"
            " or a name of the runtime's batching.",
        ),
    ]
    parameter_type: Annotated[
        Literal["double", "int", "discrete", "categorical"],
        Field(
            description="discrete values are ordered numbers or quantities; categorical ones have no order."
        ),
    ] = "discrete"
    feasible_space: FeasibleSpace
    scale: Annotated[
        Literal["log", "linear", ""],
        Field(
            description="The natural scale of an ordered axis; where it is not said, log if all values are positive."
        ),
    ] = ""


class ParameterCategory(Base):
    """The parameters that go to one place."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                (
                    "self.category != 'resource' || "
                    "self.parameters.all(p, p.name in ['cpu', 'memory', 'gpu.memory', 'gpu.cores'])"
                ),
                "a resource is cpu, memory, gpu.memory or gpu.cores",
            ),
            (
                "self.category != 'batching' || self.parameters.all(p, p.name in ['batchSize', 'timeout'])",
                "a parameter of batching is batchSize or timeout",
            ),
        ),
    }
    category: Category
    parameters: Annotated[
        list[Parameter], Field(min_length=1, max_length=16, json_schema_extra=list_map("name"))
    ]


class Objective(Base):
    """What the best spec has most, or least, of."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                "(self.objectiveMetricName == 'costAtRate') == has(self.rate)",
                "costAtRate needs a rate, and nothing else has one",
            ),
            ("!has(self.rate) || double(self.rate) > 0.0", "rate must be greater than 0"),
            (
                (
                    "(self.objectiveMetricName in ['costAtRate', 'latency', 'cost']) == "
                    "(self.type == 'minimize')"
                ),
                "costAtRate, latency and cost are of type minimize, the others of type maximize",
            ),
        ),
    }
    type: Literal["maximize", "minimize"] = "maximize"
    objective_metric_name: Annotated[
        Literal[
            "throughputPerCost", "costAtRate", "throughput", "tokensPerSecond", "tokensPerCost", "latency", "cost",
        ],
        Field(
            description="throughputPerCost: requests per unit of money; costAtRate: per hour, of the replicas that the rate needs;"
            " latency: of `percentile`.",
        ),
    ] = "throughputPerCost"  # fmt: skip
    rate: Annotated[Amount | None, Field(description="Requests per second that costAtRate must carry.")] = (
        None
    )
    percentile: Annotated[int, Field(ge=1, le=99, description="Of the metric latency.")] = 99


class Constraint(Base):
    """What a spec must meet, at the load at which its objective is taken."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                "(self.metric == 'errorRate') == self.atMost.endsWith('%')",
                "an errorRate is at most a percentage such as 1%, a latency at most a duration such as 100ms",
            ),
            (
                "self.atMost.endsWith('%') || duration(self.atMost) > duration('0s')",
                "a latency cannot be at most 0",
            ),
        ),
    }
    metric: Literal["latency", "ttft", "itl", "errorRate"]
    percentile: Annotated[int, Field(ge=1, le=99, description="Of a latency; an error rate has none.")] = 99
    at_most: Annotated[
        str,
        Field(
            max_length=32,
            pattern=r"^[0-9]+(\.[0-9]+)?(us|ms|s|m|h|%)$",
            description="A duration such as 100ms; of an error rate a percentage such as 1%.",
        ),
    ]


class Prices(Base):
    """What resources cost per hour, in any one currency."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            *(
                (f"!has(self.{name}) || double(self.{name}) >= 0.0", f"{name} must not be negative")
                for name in ("cpu", "memory", "gpu")
            ),
        ),
    }
    cpu: Annotated[Amount | None, Field(description="One core for an hour.")] = None
    memory: Annotated[Amount | None, Field(description="One GiB for an hour.")] = None
    gpu: Annotated[
        Amount | None,
        Field(description="One whole GPU for an hour; a share costs the larger of its two shares."),
    ] = None
    gpu_memory: Annotated[Quantity | None, Field(description="What a whole GPU has.")] = None


class Algorithm(Base):
    """How the next spec is chosen."""

    algorithm_name: Literal["bayesian", "grid", "random", "tpe"] = "bayesian"
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


class WarmStart(Base):
    """What is learned from earlier experiments."""

    enabled: bool = True
    experiments: Annotated[
        list[Name],
        Field(
            max_length=64,
            json_schema_extra=ATOMIC,
            description="Of this namespace; where none is named, all that are finished and have this objective and these axes.",
        ),
    ] = []


_SETTLED = (
    "target", "tunableParameters", "objective", "constraints", "load", "prices", "algorithm", "serviceProgressDeadline", "warmStart",
)  # fmt: skip
"""What trials that were made are answers to; budgets and `suspend` may change."""


def _settled(name: str) -> tuple[str, str]:
    return (
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
        f"{name} cannot change: create another experiment",
    )


class ProfilingExperimentSpec(Base):
    """Search a space for the best spec."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            *(_settled(name) for name in _SETTLED),
            ("!has(self.maxCost) || double(self.maxCost) >= 0.0", "maxCost must not be negative"),
        ),
    }
    target: Target
    tunable_parameters: Annotated[
        list[ParameterCategory], Field(min_length=1, max_length=4, json_schema_extra=list_map("category"))
    ]
    objective: Objective = Objective()
    constraints: Annotated[list[Constraint], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    load: Load = Load()
    prices: Prices = Prices()
    algorithm: Algorithm = Algorithm()
    max_num_trials: Annotated[
        int, Field(ge=1, le=10_000, description="Every trial counts, also those that fail.")
    ] = 20
    max_duration: Annotated[Duration | None, Field(description="No trial is started after this long.")] = None
    max_cost: Annotated[Amount | None, Field(description="Of the trials themselves, by the prices.")] = None
    parallelism: Annotated[int, Field(ge=1, le=64)] = 1
    service_progress_deadline: Annotated[
        Duration, Field(description="A trial that is not ready by then does not boot.")
    ] = "120s"
    warm_start: WarmStart = WarmStart()
    suspend: Annotated[bool, Field(description="Starts no trial while true.")] = False


def as_open() -> dict[str, Any]:
    """Return the schema of an object that is kept whole."""
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Setting(Base):
    """A parameter with its value."""

    category: Category
    name: str
    value: str


class Recommendation(Base):
    """The spec to run, and why."""

    trial: Annotated[str, Field(description="That measured it last.")] = ""
    settings: Annotated[list[Setting], Field(json_schema_extra=list_map("category", "name"))] = []
    objective: float = 0
    low: Annotated[float, Field(description="Lower end of the objective's 95 % interval.")] = 0
    high: float = 0
    cost_per_hour: float = 0
    current_cost_per_hour: Annotated[
        float, Field(description="Of the Inference's spec now; 0 where there is none.")
    ] = 0
    message: str = ""


class Learned(Base):
    """An earlier experiment, and how much it is believed here."""

    experiment: str
    weight: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="Of all that are believed; 0 where it measured too little, or its ranking misleads here.",
        ),
    ]


class Counts(Base):
    """Trials by what became of them."""

    total: int = 0
    running: int = 0
    succeeded: int = 0
    stopped_early: int = 0
    failed: int = 0


class ProfilingExperimentStatus(Base):
    """How far the search is."""

    phase: Literal["Pending", "Running", "Confirming", "Suspended", "Succeeded", "Failed", ""] = ""
    specs: Annotated[int, Field(description="In the space.")] = 0
    trials: Counts = Counts()
    best: Annotated[Recommendation | None, Field(description="So far.")] = None
    recommendation: Recommendation | None = None
    expected_regret: Annotated[
        float,
        Field(
            description="By what share, 0 to 1, the best spec is expected to fall short of the best one that was not measured."
        ),
    ] = 0
    repeatability: Annotated[
        float,
        Field(
            description="Standard deviation of the objective's logarithm from one trial of a spec to the next, beside what each trial says of itself."
        ),
    ] = 0
    learned: Annotated[
        list[Learned],
        Field(description="What warmStart came to.", json_schema_extra=list_map("experiment")),
    ] = []
    spent_seconds: float = 0
    spent_cost: float = 0
    start_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""
    completion_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""
    observed_generation: int = 0
    conditions: Conditions = []
