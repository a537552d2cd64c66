"""What was asked, as the report has it: the axes, the constraints, the load and the budget. Units are those of `shape`."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from serving.resources.base import Base
from serving.resources.experiment import Category


class Piece(Base):
    """A part of the report; JSON has no NaN and no infinity."""

    model_config = ConfigDict(**{**Base.model_config, "allow_inf_nan": False})


class Axis(Piece):
    """One tunable parameter."""

    category: Category
    name: str
    label: str
    values: list[str]
    positions: Annotated[list[float], Field(description="Of the values, on the natural scale.")]
    ordered: bool


class Bound(Piece):
    """One constraint."""

    metric: Literal["latency", "ttft", "itl", "errorRate"]
    percentile: int
    bound: Annotated[float, Field(description="Seconds; of an error rate a share.")]


class Question(Piece):
    """What was asked."""

    inference: str = ""
    predictor: str = ""
    model_version: str = ""
    framework: str = ""
    metric: str
    direction: Literal["maximize", "minimize"]
    rate: float | None = None
    percentile: int = 99
    constraints: list[Bound]
    axes: list[Axis]
    specs: int
    mode: Literal["closed", "open"]
    requests: Literal["model", "template", "recorded", "locustfile"]
    levels: list[float]
    max_level: float | None = None
    window_seconds: float
    warmup_seconds: float
    prices: dict[Literal["cpu", "memory", "gpu"], float]
    gpu_memory: str = ""
    trials: Annotated[int, Field(description="The budget.")]
    seconds: float | None = None
    cost: float | None = None
    parallelism: int
    algorithm: str
    seed: int
    warm_start: bool
    machine: str = ""
