"""The schema of the report's JSON.

It has every number and name of the page: the sentences are a function of the JSON alone. Times are RFC 3339,
durations and latencies in seconds, memory in bytes, shares between 0 and 1, money in the unit of the prices.
Throughput is in requests per second, an objective in the unit of its metric.

A `spec` is an index in the space, a `constraint` in `question.constraints`; the axes of a surface, curve or
share are indices in `question.axes`; a rank is an index in `Axis.values`. A `trial` is the name of a Trial,
but the number in a `Step`. A change of meaning needs a new `VERSION`.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from serving.resources.base import Base
from serving.resources.tuning.experiment import Category, Setting
from serving.resources.tuning.experiment_status import Probability, Rule
from serving.resources.tuning.trial import Estimate, LatencyAt, Reason, Window
from tuner.settled import Doubt
from tuner.trial_record import Meets

VERSION = "slipway.dev/report/v1"


class ReportPart(Base):
    """Base of the report's parts: JSON has no NaN and no infinity."""

    model_config = ConfigDict(**{**Base.model_config, "allow_inf_nan": False})


class Axis(ReportPart):
    """One tunable parameter."""

    category: Category
    name: str
    label: str
    values: list[str]
    positions: Annotated[
        list[float],
        Field(
            description="Position of each value: the amount (cores, bytes, seconds, a number), its base-2"
            " logarithm on a logarithmic axis, or the rank without an order."
        ),
    ]
    ordered: bool


class Bound(ReportPart):
    """One constraint."""

    metric: Literal["latency", "ttft", "itl", "errorRate"]
    percentile: int
    bound: Annotated[float, Field(description="Seconds; a share for an error rate.")]


class Question(ReportPart):
    """The question of the experiment: its target, objective, constraints, space, load, prices and budget."""

    inference: str = ""
    predictor: str = ""
    model_version: str = ""
    framework: str = ""
    metric: str
    direction: Literal["maximize", "minimize"]
    rate: Annotated[float | None, Field(description="Of costAtRate: requests per second.")] = None
    percentile: Annotated[int, Field(description="Of a latency as the objective.")] = 99
    constraints: list[Bound]
    axes: list[Axis]
    specs: Annotated[int, Field(description="Number of specs in the space.")]
    mode: Literal["closed", "open"]
    requests: Literal["model", "template", "recorded", "locustfile", "chat"]
    levels: Annotated[list[float], Field(description="Users, or requests per second.")]
    max_level: float | None = None
    window_seconds: float
    probe_seconds: Annotated[
        float, Field(description="Length of a window of the search for the highest load; 0 if unknown.")
    ] = 0
    warmup_seconds: float
    settle_seconds: Annotated[
        float, Field(description="Warm-up of each load after the first; 0 if there is none.")
    ] = 0
    prices: Annotated[
        dict[Literal["cpu", "memory", "gpu"], float],
        Field(description="Of a core, a GiB of memory and a GPU, per hour."),
    ]
    gpu_memory: Annotated[
        str, Field(description="Memory of a whole GPU, a quantity such as 80Gi; empty if not given.")
    ] = ""
    trials: Annotated[int, Field(description="The budget of trials.")]
    seconds: Annotated[float | None, Field(description="The budget of time; None without one.")] = None
    cost: Annotated[float | None, Field(description="The budget of money; None without one.")] = None
    parallelism: int
    algorithm: str
    seed: int
    warm_start: bool
    machine: str = ""


class TrialRow(ReportPart):
    """One trial, from its object."""

    name: str
    number: int
    purpose: Literal["Explore", "Confirm", "Baseline"]
    spec: Annotated[int | None, Field(description="Index in the space; None outside the space.")]
    settings: list[Setting]
    phase: str
    reason: Reason
    message: str = ""
    cost_per_hour: float
    batch: int
    objective: Annotated[Estimate | None, Field(description="Of the window `result`.")] = None
    meets: Meets = ""
    result: Annotated[
        Window | None, Field(description="The window whose values are the trial's; None if none counts.")
    ] = None
    windows: list[Window] = []
    notes: list[str] = []
    restarts: Annotated[int, Field(description="Restarts of the replica's containers.")] = 0
    start_seconds: Annotated[float, Field(description="Until the replica was ready.")] = 0
    seconds: Annotated[float, Field(description="Total duration.")] = 0


class Check(ReportPart):
    """One constraint and its measured value."""

    constraint: int
    measured: Estimate
    bound: float


class Choice(ReportPart):
    """A spec with its measurements, pooled as geometric means."""

    spec: int | None
    settings: list[Setting]
    trials: list[str]
    broken: Annotated[
        list[str],
        Field(
            description="Its other trials, which broke a constraint at their lowest load; they count in"
            " `checks`."
        ),
    ] = []
    objective: Estimate | None
    cost_per_hour: Annotated[
        float | None,
        Field(description="None where it is unknown: without prices, or without limits."),
    ]
    throughput: Estimate | None = None
    checks: list[Check] = []
    latencies: list[LatencyAt] = []
    cpu_cores: float = 0
    memory_bytes: int = 0


class Comparison(ReportPart):
    """The recommended spec compared with another one in the objective."""

    factor: Annotated[Estimate, Field(description="Above 1 the recommended spec is better, by this factor.")]
    verdict: Literal["Better", "Unclear", "Worse"]
    cost_per_hour: Annotated[
        float | None, Field(description="Recommended minus other; None where either is unknown.")
    ]


class Reach(ReportPart):
    """The least bound of one constraint that a measured spec meets together with the other constraints."""

    constraint: int
    value: Annotated[float, Field(description="In the unit of the constraint.")]
    spec: int | None
    settings: list[Setting]


class Obstacle(ReportPart):
    """Why nothing can be recommended."""

    constraint: Annotated[
        int | None, Field(description="The constraint that `nearest` breaks most; None where no spec ran.")
    ]
    nearest: Choice | None
    reach: list[Reach] = []


class Alternative(ReportPart):
    """The best other measured spec of the recommended one's price, and why it was not chosen."""

    choice: Choice
    probability: Probability = None
    rule: Rule


class Answer(ReportPart):
    """The spec to run, or the reason for none."""

    kind: Literal["Recommended", "Unfinished", "Impossible", "NothingRan", "Failed"]
    choice: Annotated[
        Choice | None, Field(description="Recommended; of an unfinished search, the best so far.")
    ] = None
    trial: Annotated[str, Field(description="The trial that measured `choice` last.")] = ""
    probability: Probability = None
    doubt: Annotated[
        Doubt | None, Field(description="Why a recommendation is not settled; None if it is settled.")
    ] = None
    alternative: Alternative | None = None
    current: Choice | None = None
    current_cost_per_hour: Annotated[
        float, Field(description="Of the baseline's spec, also if `current` is None; 0 if unknown.")
    ] = 0
    runner_up: Annotated[
        Choice | None, Field(description="The next best spec, among the confirmed ones if there are any.")
    ] = None
    against_current: Comparison | None = None
    against_runner_up: Comparison | None = None
    obstacle: Obstacle | None = None
    message: str = ""


class Surface(ReportPart):
    """The objective over two axes, with the other axes as in the shown spec."""

    x: int
    y: int
    x_ranks: list[int]
    y_ranks: list[int]
    mean: Annotated[list[list[float]], Field(description="Rows are y; in the objective's unit.")]
    deviation: Annotated[list[list[float]], Field(description="Of the logarithm.")]
    meets: Annotated[
        list[list[float]], Field(description="Probability of running and of meeting every constraint.")
    ]


class Curve(ReportPart):
    """The objective along one axis: averaged over the space, and with the other axes as in the shown spec."""

    axis: int
    ranks: list[int]
    mean: Annotated[list[float], Field(description="Average over the other axes, for each rank.")]
    low: Annotated[list[float], Field(description="Lower end of the 95 % band of `mean`.")]
    high: list[float]
    slice: Annotated[list[float], Field(description="With the other axes as in the shown spec.")]
    meets: Annotated[
        list[float],
        Field(description="Of the slice: probability of running and of meeting every constraint."),
    ]


class Share(ReportPart):
    """The share of the objective's variance due to one axis, or to two together."""

    axes: list[int]
    share: float


class Model(ReportPart):
    """The expected objective over the whole space, from the trials."""

    observations: Annotated[int, Field(description="Number of observations.")]
    around: Annotated[int, Field(description="The shown spec, which surfaces and slices pass through.")]
    surfaces: list[Surface]
    curves: list[Curve]
    shares: list[Share]


class Point(ReportPart):
    """One spec in a plot of two measures."""

    spec: int | None
    trial: str
    x: Annotated[float, Field(description="Cost per hour of a replica.")]
    y: Annotated[Estimate, Field(description="The front's `measure`.")]
    meets: Meets
    front: Annotated[bool, Field(description="Whether the point is on the front.")]


class Front(ReportPart):
    """Cost per hour against another measure, with the Pareto front."""

    measure: Literal["latency", "ttft", "itl", "throughput"]
    percentile: int
    better: Literal["less", "more"]
    points: list[Point]


class Step(ReportPart):
    """The state of the search after a trial."""

    trial: Annotated[int, Field(description="Number of the trial.")]
    best: Annotated[
        float | None,
        Field(description="Best objective of the complete trials so far that may meet the constraints."),
    ]
    expected_regret: Annotated[
        float | None,
        Field(
            description="Share of the optimum by which the best is expected to fall short, by the trials of"
            " this experiment alone."
        ),
    ] = None


class CoursePoint(ReportPart):
    """One load."""

    level: Annotated[float, Field(description="Users, or requests per second.")]
    throughput: Estimate
    latency: LatencyAt


class Course(ReportPart):
    """A latency over load in one trial, from all its windows, up to the lowest failing load."""

    trial: str
    metric: Literal["latency", "ttft", "itl"]
    percentile: int
    points: list[CoursePoint]


class Segment(ReportPart):
    """The values of a price or a bound from `start` to `end` at which one spec wins; None is no end."""

    start: float
    end: float | None
    trial: Annotated[str, Field(description="The winner's last trial; empty where no spec is allowed.")]
    settings: list[Setting]
    at: Annotated[float, Field(description="The price or bound at which `factor` holds.")]
    factor: Annotated[
        float | None,
        Field(
            description="Factor by which the winner is better than the recommended spec at `at`; None where"
            " the recommended spec is not allowed."
        ),
    ] = None


class PriceChange(ReportPart):
    """The winners over one price, with the others unchanged."""

    price: Literal["cpu", "memory", "gpu"]
    today: float
    segments: list[Segment]


class BoundChange(ReportPart):
    """The winners over the bounds of one constraint, with the others unchanged, by the curves of trials."""

    constraint: int
    today: float
    segments: list[Segment]


class Caution(ReportPart):
    """A reason for doubt about the numbers."""

    code: Literal[
        "GeneratorLimited",
        "LimitNotEnforced",
        "NotSteady",
        "OutsideMeasured",
        "MeasuredBetter",
        "NotConfirmed",
        "BrokeConstraint",
        "NarrowMargin",
        "NoPrices",
        "CurrentNotMeasured",
        "CurrentBetter",
        "CurrentDidNotRun",
        "CurrentCostUnknown",
        "SeveralMachines",
        "ModelChanged",
        "Unfinished",
        "Note",
    ]
    trials: list[str] = []
    detail: str = ""


class EarlierExperiment(ReportPart):
    """An earlier experiment and its final weight in the search, 0 to 1."""

    experiment: str
    weight: float


class Spent(ReportPart):
    """The number of trials by outcome, and the time, the cost and the result of the search."""

    trials: int
    succeeded: int
    stopped_early: int
    failed: int
    running: int
    seconds: float
    cost: float
    expected_regret: float


class Report(ReportPart):
    """The report of one experiment."""

    version: Literal["slipway.dev/report/v1"] = "slipway.dev/report/v1"
    generated_at: str
    name: str
    namespace: str
    phase: str
    start_time: str = ""
    completion_time: str = ""
    question: Question
    learned: Annotated[
        list[EarlierExperiment], Field(description="The earlier experiments of a warm start.")
    ] = []
    repeatability: Annotated[
        float,
        Field(
            description="Standard deviation of the objective's logarithm between trials of a spec, beyond"
            " their own intervals."
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
            description="Of today's spec, the runner-up and the recommended spec, by the last trial of each."
        ),
    ] = []
    spent: Spent

    @property
    def trials_of_model(self) -> list[TrialRow]:
        """The trials of the newest trial's model; the caution ModelChanged names the others."""
        others = {name for c in self.cautions if c.code == "ModelChanged" for name in c.trials}
        return [row for row in self.trials if row.name not in others]
