"""The spec of a ProfilingExperiment: a search for the spec of a replica that has the best objective and meets
the constraints. Fields have the names of Morphling's:

https://github.com/kubedl-io/morphling/blob/main/api/v1alpha1/profilingexperiment_types.go
"""

from typing import Annotated, Literal

from pydantic import Field

from serving.resources.base import (
    ATOMIC,
    Amount,
    Base,
    Duration,
    Name,
    Quantity,
    list_map,
    rules,
)
from serving.resources.inference import Framework, PredictorTemplate, Resources
from serving.resources.tuning.load import ExperimentLoad

Category = Literal["resource", "batching", "env", "args"]
"""The part of a predictor that has a parameter: `resources`, `batching`, or its container's variables or
arguments."""
Value = Annotated[str, Field(max_length=256, json_schema_extra={"x-kubernetes-int-or-string": True})]
"""A value of a parameter as its user wrote it, such as `500m`; a number becomes a string."""


class TuningTarget(Base):
    """The target of the search: a running predictor of an Inference, or a ModelVersion."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            ("has(self.inference) != has(self.modelVersion)", "give either inference or modelVersion"),
            ("!has(self.modelVersion) || has(self.framework)", "a modelVersion needs a framework"),
            ("!has(self.predictor) || has(self.inference)", "predictor is allowed only with inference"),
            (
                "!has(self.framework) || has(self.modelVersion)",
                "framework is allowed only with modelVersion",
            ),
            (
                "!has(self.resources) || has(self.modelVersion)",
                "resources are allowed only with modelVersion",
            ),
            (
                "!has(self.template) || has(self.modelVersion)",
                "template is allowed only with modelVersion",
            ),
            (
                (
                    "!has(self.framework) || self.framework != 'custom' || (has(self.template) && "
                    "has(self.template.containers) && self.template.containers.exists(c, c.name =="
                    " 'predictor'))"
                ),
                "framework custom needs a container named predictor in the template",
            ),
        ),
    }
    inference: Name | None = None
    predictor: Annotated[
        Name | None, Field(description="Predictor of the Inference; may be omitted if it has only one.")
    ] = None
    model_version: Name | None = None
    framework: Framework | None = None
    resources: Annotated[
        Resources | None,
        Field(description="Resources of a replica, as in a predictor; tuned parameters replace them."),
    ] = None
    template: Annotated[
        PredictorTemplate | None,
        Field(description="Additions to the Pods, as in a predictor."),
    ] = None


class FeasibleSpace(Base):
    """The values of one parameter: a list, a range with a step, or a geometric range."""

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
            description="Values in any order; a number with a decimal point must be quoted.",
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
    """One dimension of the search space."""

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
            description="A resource (cpu, memory, gpu.memory, gpu.cores), an environment variable, an"
            " argument such as --threads, or a field of the runtime's batching.",
        ),
    ]
    parameter_type: Annotated[
        Literal["double", "int", "discrete", "categorical"],
        Field(
            description="Discrete values are ordered numbers or quantities; categorical values have no order."
        ),
    ] = "discrete"
    feasible_space: FeasibleSpace
    scale: Annotated[
        Literal["log", "linear", ""],
        Field(description="Scale of an ordered parameter; default: log if all values are positive."),
    ] = ""


class ParameterCategory(Base):
    """The parameters of one category, which decides where their values are written."""

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


class Setting(Base):
    """A parameter and its value."""

    category: Category
    name: str
    value: str


class Objective(Base):
    """The metric that the best spec maximizes or minimizes."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                "(self.objectiveMetricName == 'costAtRate') == has(self.rate)",
                "rate is required for costAtRate, and not allowed otherwise",
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
            "throughputPerCost",
            "costAtRate",
            "throughput",
            "tokensPerSecond",
            "tokensPerCost",
            "latency",
            "cost",
        ],
        Field(
            description="throughput, tokensPerSecond: requests and tokens per second of a replica;"
            " throughputPerCost, tokensPerCost: requests and tokens per unit of money; latency: the latency"
            " at `percentile`; cost: hourly cost of a replica; costAtRate: hourly cost of the replicas that"
            " `rate` needs.",
        ),
    ] = "throughputPerCost"
    rate: Annotated[Amount | None, Field(description="For costAtRate: requests per second to be served.")] = (
        None
    )
    percentile: Annotated[int, Field(ge=1, le=99, description="For the metric latency: the percentile.")] = 99


class Constraint(Base):
    """A limit that a spec must meet at the load at which its objective is measured."""

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
    metric: Annotated[
        Literal["latency", "ttft", "itl", "errorRate"],
        Field(description="ttft: time to first token; itl: time between tokens."),
    ]
    percentile: Annotated[
        int, Field(ge=1, le=99, description="Percentile of a latency; ignored for an error rate.")
    ] = 99
    at_most: Annotated[
        str,
        Field(
            max_length=32,
            pattern=r"^[0-9]+(\.[0-9]+)?(us|ms|s|m|h|%)$",
            description="A duration such as 100ms; for an error rate a percentage such as 1%.",
        ),
    ]


class Prices(Base):
    """Hourly prices of resources, in any one currency."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            *(
                (f"!has(self.{name}) || double(self.{name}) >= 0.0", f"{name} must not be negative")
                for name in ("cpu", "memory", "gpu")
            ),
            (  # a text has a digit other than 0 before the suffix or the exponent
                (
                    "!has(self.gpuMemory) || (type(self.gpuMemory) == int ? self.gpuMemory > 0"
                    " : self.gpuMemory.matches('^[+]?[0-9.]*[1-9]'))"
                ),
                "gpuMemory must be above 0",
            ),
        ),
    }
    cpu: Annotated[Amount | None, Field(description="Price of one core per hour.")] = None
    memory: Annotated[Amount | None, Field(description="Price of one GiB per hour.")] = None
    gpu: Annotated[
        Amount | None,
        Field(
            description="Price of a whole GPU per hour; a share costs the larger of its memory and core"
            " shares."
        ),
    ] = None
    gpu_memory: Annotated[
        Annotated[Quantity, Field(max_length=32)] | None, Field(description="Memory of a whole GPU.")
    ] = None


class Algorithm(Base):
    """The search algorithm that chooses the next spec."""

    algorithm_name: Literal["bayesian", "grid", "random", "tpe"] = "bayesian"
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


class WarmStart(Base):
    """Use of the results of earlier experiments."""

    enabled: bool = True
    experiments: Annotated[
        list[Name],
        Field(
            max_length=64,
            json_schema_extra=ATOMIC,
            description="Experiments in this namespace; default: all finished ones with this objective and"
            " these parameters.",
        ),
    ] = []


_IMMUTABLE = (
    "target",
    "tunableParameters",
    "objective",
    "constraints",
    "load",
    "prices",
    "algorithm",
    "serviceProgressDeadline",
    "warmStart",
)
"""Fields on which existing trials depend; budgets, `parallelism` and `suspend` may change."""


def _immutable(name: str) -> tuple[str, str]:
    """Return the rule of an immutable field: a CEL expression and its message."""
    return (
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
        f"{name} cannot change: create another experiment",
    )


class ProfilingExperimentSpec(Base):
    """A search of a space of specs for the best one."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            *(_immutable(name) for name in _IMMUTABLE),
            ("!has(self.maxCost) || double(self.maxCost) >= 0.0", "maxCost must not be negative"),
        ),
    }
    target: TuningTarget
    tunable_parameters: Annotated[
        list[ParameterCategory], Field(min_length=1, max_length=4, json_schema_extra=list_map("category"))
    ]
    objective: Objective = Objective()
    constraints: Annotated[list[Constraint], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    load: ExperimentLoad = ExperimentLoad()
    prices: Prices = Prices()
    algorithm: Algorithm = Algorithm()
    max_num_trials: Annotated[
        int, Field(ge=1, le=10_000, description="Maximum number of trials, including failed ones.")
    ] = 20
    max_duration: Annotated[
        Duration | None,
        Field(
            description="Time after which no trial is started; time in which the experiment is suspended or"
            " over does not count."
        ),
    ] = None
    max_cost: Annotated[Amount | None, Field(description="Maximum cost of the trials, by the prices.")] = None
    parallelism: Annotated[int, Field(ge=1, le=64)] = 1
    service_progress_deadline: Annotated[
        Duration, Field(description="Time within which a trial must be ready.")
    ] = "120s"
    warm_start: WarmStart = WarmStart()
    suspend: Annotated[bool, Field(description="While true, no trial is started.")] = False
