"""The schema of the report's JSON.

It has every number and name that the page shows, so that the sentences are a function of the JSON alone.
Times are RFC 3339, durations and latencies seconds, memory bytes, shares between 0 and 1, money the unit of
the prices. A change of meaning is a new `VERSION`.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from serving.resources.base import Base
from serving.resources.experiment import Category, Setting
from serving.resources.trial import Estimate, LatencyAt, Reason, Window
from tuner.trial_record import Meets

VERSION = "slipway.dev/report/v1"


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


class TrialRow(Piece):
    """One trial, as its object says it."""

    name: str
    number: int
    purpose: Literal["Explore", "Confirm", "Baseline"]
    spec: Annotated[int | None, Field(description="Index in the space; None for a spec outside of it.")]
    settings: list[Setting]
    phase: str
    reason: Reason
    message: str = ""
    cost_per_hour: float
    batch: int
    objective: Estimate | None = None
    meets: Meets = ""
    result: Window | None = None
    windows: list[Window] = []
    notes: list[str] = []
    restarts: int = 0
    start_seconds: float = 0
    seconds: float = 0


class Check(Piece):
    """One constraint, and what was measured of it."""

    constraint: int
    measured: Estimate
    bound: float


class Choice(Piece):
    """A spec with all that was measured of it; several measurements are pooled as geometric means."""

    spec: int | None
    settings: list[Setting]
    trials: list[str]
    broken: Annotated[
        list[str],
        Field(
            description="Further trials of it, that met the constraints at no load: they count in `checks`."
        ),
    ] = []
    objective: Estimate | None
    cost_per_hour: Annotated[
        float | None,
        Field(description="None where it is not known: there are no prices, or it has no limits."),
    ]
    throughput: Estimate | None = None
    checks: list[Check] = []
    latencies: list[LatencyAt] = []
    cpu_cores: float = 0
    memory_bytes: int = 0


class Comparison(Piece):
    """How much better the recommended spec is than another, in the objective."""

    factor: Annotated[Estimate, Field(description="Above 1: the recommended spec is better, so many times.")]
    verdict: Literal["Better", "Unclear", "Worse"]
    cost_per_hour: Annotated[
        float | None, Field(description="Recommended minus other; None where either is not known.")
    ]


class Reach(Piece):
    """The least bound of one constraint that some measured spec met, the other constraints being met."""

    constraint: int
    value: float
    spec: int | None
    settings: list[Setting]


class Obstacle(Piece):
    """Why nothing can be recommended."""

    constraint: Annotated[int | None, Field(description="None where no spec ran.")]
    nearest: Choice | None
    reach: list[Reach] = []


class Answer(Piece):
    """What to run."""

    kind: Literal["Recommended", "Unfinished", "Impossible", "NothingRan", "Failed"]
    choice: Annotated[
        Choice | None, Field(description="Recommended; of an unfinished search, the best so far.")
    ] = None
    trial: str = ""
    current: Choice | None = None
    current_cost_per_hour: float = 0
    runner_up: Choice | None = None
    against_current: Comparison | None = None
    against_runner_up: Comparison | None = None
    obstacle: Obstacle | None = None
    message: str = ""


class Surface(Piece):
    """The objective over two axes, the other ones as in the spec that is shown."""

    x: int
    y: int
    x_ranks: list[int]
    y_ranks: list[int]
    mean: Annotated[list[list[float]], Field(description="Rows are y. Natural units.")]
    deviation: Annotated[list[list[float]], Field(description="Of the logarithm.")]
    meets: Annotated[list[list[float]], Field(description="Probability that it runs and meets all.")]


class Curve(Piece):
    """The objective along one axis: averaged over the space, and with the other axes as in the shown spec."""

    axis: int
    ranks: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]
    slice: list[float]
    meets: list[float]


class Share(Piece):
    """How much of the objective's variance is due to one axis, or to two together."""

    axes: list[int]
    share: float


class Model(Piece):
    """What the trials let expect of the whole space."""

    observations: int
    around: Annotated[int, Field(description="The spec whose settings the slices keep.")]
    surfaces: list[Surface]
    curves: list[Curve]
    shares: list[Share]


class Point(Piece):
    """One spec in a plot of two measures."""

    spec: int | None
    trial: str
    x: float
    y: Estimate
    meets: Meets
    front: bool


class Front(Piece):
    """Cost per hour against something else; on the front is what nothing beats in both."""

    measure: Literal["latency", "ttft", "itl", "throughput"]
    percentile: int
    better: Literal["less", "more"]
    points: list[Point]


class Step(Piece):
    """The search after one more trial."""

    trial: int
    best: float | None
    expected_regret: Annotated[
        float | None,
        Field(
            description="Share of the optimum by which the best falls short, as this experiment's trials let expect."
        ),
    ] = None


class CoursePoint(Piece):
    """One load."""

    level: Annotated[float, Field(description="Users, or requests per second.")]
    throughput: Estimate
    latency: LatencyAt


class Course(Piece):
    """A latency over load in one trial, from all its windows, up to the lowest failing load."""

    trial: str
    metric: Literal["latency", "ttft", "itl"]
    percentile: int
    points: list[CoursePoint]


class Segment(Piece):
    """Between these values this spec wins. `end` None: without end."""

    start: float
    end: float | None
    trial: Annotated[str, Field(description="That measured the winner last; empty where none is allowed.")]
    settings: list[Setting]
    at: float
    factor: Annotated[
        float | None,
        Field(
            description="How many times better than the recommended spec at `at`; None where that one fails there."
        ),
    ] = None


class PriceChange(Piece):
    """Who wins at which price, the other prices being as they are."""

    price: Literal["cpu", "memory", "gpu"]
    today: float
    segments: list[Segment]


class BoundChange(Piece):
    """The winners over the bounds of one constraint, with the others unchanged, by the trials' curves."""

    constraint: int
    today: float
    segments: list[Segment]


class Caution(Piece):
    """What the reader should know before trusting the numbers."""

    code: Literal[
        "GeneratorLimited", "LimitNotEnforced", "NotSteady", "OutsideMeasured", "MeasuredBetter",
        "NotConfirmed", "BrokeConstraint", "NarrowMargin", "NoPrices", "CurrentNotMeasured", "CurrentBetter", "CurrentDidNotRun", "CurrentCostUnknown", "SeveralMachines", "ModelChanged", "Unfinished", "Note",
    ]  # fmt: skip
    trials: list[str] = []
    detail: str = ""


class Lesson(Piece):
    """An earlier experiment, and how much it was believed at last."""

    experiment: str
    weight: float


class Spent(Piece):
    """What the search took."""

    trials: int
    succeeded: int
    stopped_early: int
    failed: int
    running: int
    seconds: float
    cost: float
    expected_regret: float


class Report(Piece):
    """All of it."""

    version: Literal["slipway.dev/report/v1"] = "slipway.dev/report/v1"
    generated_at: str
    name: str
    namespace: str
    phase: str
    start_time: str = ""
    completion_time: str = ""
    question: Question
    learned: Annotated[list[Lesson], Field(description="What a warm start came to.")] = []
    repeatability: Annotated[
        float,
        Field(
            description="Standard deviation of the objective's logarithm from one trial of a spec to the next, beside their own intervals."
        ),
    ] = 0
    answer: Answer
    cautions: list[Caution]
    prices: list[PriceChange]
    bounds: list[BoundChange]
    fronts: list[Front]
    model: Model | None
    steps: list[Step]
    trials: list[TrialRow]
    courses: Annotated[
        list[Course],
        Field(
            description="Of today's spec, the runner-up and the recommended one, as far as there are such; each one's last trial."
        ),
    ] = []
    spent: Spent
