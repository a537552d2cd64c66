"""State and steps of the search for the highest load, shared with the runner that measures."""

from dataclasses import dataclass

from serving.resources.tuning.experiment import Constraint
from serving.resources.tuning.load import ExperimentLoad
from serving.resources.tuning.trial import Reason, Window
from tuner.settings import LoadSettings


@dataclass(frozen=True)
class MeasureLevel:
    """Measure this level next."""

    level: float
    """Users, or requests per second."""
    warmup: float
    """Seconds at this level before the window; their samples are dropped."""
    seconds: float
    """Length of the window."""
    extends: bool
    """Whether it extends the last window: a summary of both windows' samples replaces the last summary."""


@dataclass(frozen=True)
class Finished:
    """The end of the search."""

    result: Window
    """The resulting load's values from all windows; for BreaksConstraint, the window that breaks it."""
    reason: Reason
    """Measured, CannotBeatBest or BreaksConstraint."""
    message: str
    notes: tuple[str, ...]
    """For the Trial's status."""


@dataclass(frozen=True)
class LoadPoint:
    """A load with its values and the bounds that it would meet."""

    window: Window
    needs: tuple[float, ...]
    """Least bound of each constraint that this load, or a higher one, would meet; seconds, or a share."""


@dataclass(frozen=True)
class State:
    """The windows so far, and the goal."""

    load: ExperimentLoad
    settings: LoadSettings
    constraints: tuple[Constraint, ...]
    stop_below: float
    """Requests per second that a load must reach to win: once none can, the search stops; 0: never."""
    windows: tuple[Window, ...] = ()
    """In the order of measurement; of several windows of a level the last one has the verdict."""
    planned: tuple[float, ...] = ()
    """Planned seconds of each window; `Window.seconds` are those that were kept."""

    @property
    def cap(self) -> float:
        """The highest allowed level."""
        if self.load.max_level is not None:
            return self.drivable(float(self.load.max_level))
        return self.settings.most_users if self.load.mode == "closed" else self.settings.most_rate

    def drivable(self, level: float) -> float:
        """Return the nearest level that can be driven: users are whole, and at least one."""
        return float(max(1, round(level))) if self.load.mode == "closed" else level
