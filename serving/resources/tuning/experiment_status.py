"""The status of a ProfilingExperiment: its progress, and the recommended spec with the reason for it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from serving.resources.base import Base, Conditions, list_map
from serving.resources.tuning.experiment import Setting
from serving.resources.tuning.trial import FINISHED

Rule = Literal["OnlySafe", "HigherProbability", "EqualProbability", "BetterObjective", "EqualObjective"]
"""Why a spec was chosen and not another of the same price; `MeasuredAlternative.rule` describes each."""

Probability = Annotated[
    float | None,
    Field(ge=0, le=1, description="Probability that one further measurement meets every constraint."),
]


class MeasuredSpec(Base):
    """A spec with its measured objective."""

    trial: Annotated[str, Field(description="Trial that measured it last.")] = ""
    settings: Annotated[list[Setting], Field(json_schema_extra=list_map("category", "name"))] = []
    objective: Annotated[float, Field(description="The measured value of the experiment's objective.")] = 0
    low: Annotated[float, Field(description="Lower bound of the objective's 95 % interval.")] = 0
    high: Annotated[float, Field(description="Upper bound of the interval.")] = 0
    probability: Probability = None


class MeasuredAlternative(MeasuredSpec):
    """The best other spec of the same price, and why it was not chosen."""

    rule: Annotated[
        Rule,
        Field(
            description="Why the chosen spec is better. A spec is safe if it meets the constraints with"
            " an allowance for noise. OnlySafe: only the chosen one is safe; BetterObjective: both are;"
            " EqualObjective: both are, their objectives are equal, and the chosen one is safer;"
            " HigherProbability: neither is, and the chosen one is safer; EqualProbability: neither is, and"
            " the objective of the chosen one is better."
        ),
    ]


class Recommendation(MeasuredSpec):
    """The spec to run, and the reason for it."""

    alternative: Annotated[
        MeasuredAlternative | None,
        Field(description="The best objective among the other measured specs of the same price."),
    ] = None
    cost_per_hour: Annotated[
        float, Field(description="Hourly cost of one replica, in the currency of the prices.")
    ] = 0
    current_cost_per_hour: Annotated[
        float, Field(description="Hourly cost of the current spec of the Inference; 0 if there is none.")
    ] = 0
    message: str = ""


class PriorExperiment(Base):
    """An earlier experiment, and its weight in this one."""

    experiment: str
    weight: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="Weight, relative to the others; 0 if it measured too little or its ranking does not"
            " apply here.",
        ),
    ]


class TrialCounts(Base):
    """The number of trials by outcome."""

    total: int = 0
    running: int = 0
    succeeded: int = 0
    stopped_early: int = 0
    failed: int = 0


class ProfilingExperimentStatus(Base):
    """Progress and result of the search."""

    phase: Literal["Pending", "Running", "Confirming", "Suspended", "Succeeded", "Failed", ""] = ""
    specs: Annotated[int, Field(description="Number of specs in the space.")] = 0
    trials: TrialCounts = TrialCounts()
    best: Annotated[Recommendation | None, Field(description="Best spec so far.")] = None
    recommendation: Recommendation | None = None
    expected_regret: Annotated[
        float,
        Field(
            description="Expected shortfall of the best spec against the best unmeasured one, as a share from"
            " 0 to 1; 1 while it is unknown."
        ),
    ] = 1
    repeatability: Annotated[
        float,
        Field(
            description="Standard deviation of the logarithm of the objective between trials of one spec, in"
            " addition to the error that each trial reports."
        ),
    ] = 0
    learned: Annotated[
        list[PriorExperiment],
        Field(description="Earlier experiments used by warmStart.", json_schema_extra=list_map("experiment")),
    ] = []
    spent_seconds: Annotated[float, Field(description="Sum of the durations of the ended trials.")] = 0
    spent_cost: Annotated[
        float, Field(description="Cost of the ended trials, in the currency of the prices.")
    ] = 0
    start_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""
    suspend_time: Annotated[
        str,
        Field(
            description="Since when the experiment is suspended, if its trials have begun.",
            json_schema_extra={"format": "date-time"},
        ),
    ] = ""
    suspended_seconds: Annotated[
        float,
        Field(
            description="Earlier time in which the experiment was suspended or over, which maxDuration does"
            " not count."
        ),
    ] = 0
    completion_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""
    observed_generation: int = 0
    conditions: Conditions = []


def is_over(experiment: Mapping[str, Any]) -> bool:
    """Whether a ProfilingExperiment has finished with its present spec."""
    status = experiment.get("status") or {}
    is_current = status.get("observedGeneration") == experiment["metadata"].get("generation")
    return is_current and status.get("phase") in FINISHED
