"""The decisions of a search: the values that `decide` returns. An index is a spec's row in the space."""

from dataclasses import dataclass

from serving.resources.tuning.experiment_status import Rule

Learned = tuple[tuple[str, float], ...]
"""Earlier experiments with their weights in the model; 0 for one with too few trials or a misleading
ranking."""


@dataclass(frozen=True)
class IndexedAlternative:
    """The spec to compare the best one with, and why it was not chosen."""

    index: int
    probability: float
    """That one further measurement meets every constraint."""
    rule: Rule


@dataclass(frozen=True, kw_only=True)
class _Decision:
    """Common to all decisions."""

    best: int | None = None
    """The spec that would be recommended now; None if no spec that ran meets the constraints."""
    probability: float | None = None
    """That one further measurement of `best` meets every constraint; None without `best`."""
    is_safe: bool = False
    """Whether `best` meets every constraint with the allowance for noise."""
    alternative: IndexedAlternative | None = None
    """The spec of the same price to compare `best` with; None if no other was measured."""
    learned: Learned = ()
    repeatability: float = 0.0
    """Standard deviation of the log objective between trials of one spec, beyond their own intervals (ISO
    5725-1)."""


@dataclass(frozen=True)
class Explore(_Decision):
    """Measure these new specs."""

    indices: tuple[int, ...]
    expected_regret: float
    """Share of the optimum that the best spec so far is expected to miss; 1 if nothing is known."""


@dataclass(frozen=True)
class Confirm(_Decision):
    """Measure the winner, the runner-up or both again."""

    indices: tuple[int, ...]
    expected_regret: float


@dataclass(frozen=True)
class Wait(_Decision):
    """Wait for running trials."""

    expected_regret: float


@dataclass(frozen=True)
class Recommend(_Decision):
    """End the search with a recommendation."""

    index: int
    expected_regret: float
    because: str
    """Why the search stopped: `budget`, `regret` or `exhausted`."""


@dataclass(frozen=True)
class Impossible(_Decision):
    """End the search, as no measured spec meets the constraints."""

    constraint: int | None
    """Index of the constraint that the nearest spec breaks most; None if no spec runs."""
    nearest: int | None
    """The spec that came nearest to the constraints; None if no spec runs."""
    margins: tuple[float, ...]
    """The margins of `nearest`, one for each constraint; empty without `nearest`."""
    p_any: float
    """Probability that any unmeasured spec meets every constraint."""


Decision = Explore | Confirm | Wait | Recommend | Impossible
