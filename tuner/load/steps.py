"""The vocabulary between the search for the highest load and whoever measures."""

from dataclasses import dataclass

from serving.resources.experiment import Constraint
from serving.resources.load import Load
from serving.resources.trial import Reason, Window
from tuner.settings import LoadSettings


@dataclass(frozen=True)
class Measure:
    """Drive this load next."""

    level: float
    """Users, or requests per second."""
    warmup: float
    """Seconds at this level before the window, whose samples are dropped; may be 0."""
    seconds: float
    """Of the window."""
    extends: bool
    """It goes on with the last window: their samples are joined, and the summary of both replaces the last one's."""


@dataclass(frozen=True)
class Finished:
    """The search is over."""

    result: int
    """Index into `State.windows`."""
    reason: Reason
    """Measured, CannotBeatBest or BreaksConstraint."""
    message: str
    notes: tuple[str, ...]
    """As in a Trial's status."""


@dataclass(frozen=True)
class State:
    """What was measured so far, and what is looked for."""

    load: Load
    settings: LoadSettings
    constraints: tuple[Constraint, ...]
    stop_below: float
    """Requests per second that this spec must be able to give; 0 where that is not asked."""
    windows: tuple[Window, ...] = ()
    """In the order in which they were measured; the last one of a level speaks for it."""
    asked: tuple[float, ...] = ()
    """Seconds that each window was to last; a Window's own are what was kept of them."""
