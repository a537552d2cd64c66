"""What a search says: the vocabulary between `decide` and whoever acts on it."""

from dataclasses import dataclass

Learned = tuple[tuple[str, float], ...]
"""Earlier experiments with their shares in what is believed here; 0: too few trials, or its ranking misleads."""


@dataclass(frozen=True, kw_only=True)
class _Said:
    """What every decision says."""

    best: int | None = None
    """What would be recommended now; None where nothing that is known to run meets the constraints."""
    learned: Learned = ()
    repeatability: float = 0.0
    """Standard deviation of the log objective from one trial of a spec to the next, beside what each trial says of itself (ISO 5725-1)."""


@dataclass(frozen=True)
class Explore(_Said):
    """Measure these specs; they are new."""

    indices: tuple[int, ...]
    expected_regret: float
    """Share of the optimum by which the best so far is expected to fall short of it; 1 where nothing is known."""


@dataclass(frozen=True)
class Confirm(_Said):
    """Measure these again: the winner, and its runner-up."""

    indices: tuple[int, ...]
    expected_regret: float


@dataclass(frozen=True)
class Wait(_Said):
    """Trials that are running must end first."""

    expected_regret: float


@dataclass(frozen=True)
class Recommend(_Said):
    """The search is over."""

    index: int
    runner_up: int | None
    expected_regret: float
    because: str
    """Why the search stopped: `budget`, `regret` or `exhausted`."""


@dataclass(frozen=True)
class Impossible(_Said):
    """Nothing that was measured meets the constraints."""

    constraint: int | None
    """The one that stands in the way most: None where no spec runs."""
    nearest: int | None
    """The spec that came nearest."""
    margins: tuple[float, ...]
    """Its margins."""
    p_any: float
    """Probability that some spec that was not measured meets them."""


Decision = Explore | Confirm | Wait | Recommend | Impossible
