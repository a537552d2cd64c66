"""The state of an experiment from which its plan is made: values without decisions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from serving.objects import Object
from serving.resources.tuning.experiment import ProfilingExperimentSpec, Setting
from serving.resources.tuning.experiment_status import ProfilingExperimentStatus
from tuner.settings import TunerSettings
from tuner.specs.rendering import Rendering
from tuner.specs.space import Space
from tuner.trial_record import TrialRecord

SpecPoint = tuple[Setting, ...]
"""The settings of tuned parameters: one for each in a spec of the space, fewer or none for today's spec."""
Phase = Literal["Pending", "Running", "Confirming", "Suspended", "Succeeded", "Failed"]


@dataclass(frozen=True)
class ExperimentSnapshot:
    """An experiment whose space is valid and whose target is ready."""

    experiment: Object
    experiment_spec: ProfilingExperimentSpec
    status: ProfilingExperimentStatus
    """As stored."""
    space: Space
    trials: tuple[TrialRecord, ...]
    """All Trials of the experiment, sorted by number."""
    render: Callable[[SpecPoint], Rendering]
    """Renders a spec as it would be deployed; without settings, the target's own spec."""
    tuner_settings: TunerSettings
    space_note: str = ""
    """Message of the condition SpaceValid: a warning about a valid space."""

    @property
    def running(self) -> int:
        """Number of trials that have not ended."""
        return sum(not trial.is_over for trial in self.trials)

    @property
    def baseline(self) -> TrialRecord | None:
        """The newest trial of today's spec with today's model; None without one."""
        baselines = [trial for trial in self.trials if trial.spec.purpose == "Baseline" and not trial.stale]
        return baselines[-1] if baselines else None

    @property
    def name(self) -> str:
        """Name of the experiment."""
        name: str = self.experiment["metadata"]["name"]
        return name
