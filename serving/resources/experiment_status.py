"""What a search says of itself: a ProfilingExperiment's status, and the words that its Trials and reports share with it."""

from typing import Annotated, Literal

from pydantic import Field

from serving.resources.base import Base, Conditions, list_map
from serving.resources.experiment import Category


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
