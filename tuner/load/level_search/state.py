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

    result: Window
    """What the load found gives, as all windows together say; of a constraint that no load meets, the window that says so."""
    reason: Reason
    """Measured, CannotBeatBest or BreaksConstraint."""
    message: str
    notes: tuple[str, ...]
    """As in a Trial's status."""


@dataclass(frozen=True)
class LoadPoint:
    """What a load gives, and what it takes."""

    window: Window
    needs: tuple[float, ...]
    """For each constraint the least bound with which this load, or a higher one, would be found; seconds, or a share."""


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

    @property
    def cap(self) -> float:
        """The highest level that is allowed."""
        if self.load.max_level is not None:
            return self.drivable(float(self.load.max_level))
        return self.settings.most_users if self.load.mode == "closed" else self.settings.most_rate

    def drivable(self, asked: float) -> float:
        """Return the level that can be driven: users are whole, and one at least."""
        return float(max(1, round(asked))) if self.load.mode == "closed" else asked
