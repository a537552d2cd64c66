"""What planning an experiment reads. Values only; nothing is decided here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from serving.objects import Object
from serving.resources.experiment import ProfilingExperimentSpec, ProfilingExperimentStatus, Setting
from tuner.settings import TunerSettings
from tuner.specs.rendering import Rendering
from tuner.specs.space import Space
from tuner.trial_record import TrialRecord

Settings = tuple[Setting, ...]
Phase = Literal["Pending", "Running", "Confirming", "Suspended", "Succeeded", "Failed"]


@dataclass(frozen=True)
class ExperimentSnapshot:
    """One experiment whose space is valid and whose target is ready."""

    experiment: Object
    spec: ProfilingExperimentSpec
    status: ProfilingExperimentStatus
    """As stored."""
    space: Space
    trials: tuple[TrialRecord, ...]
    """By number."""
    render: Callable[[Settings], Rendering]
    """Gives a spec as it would be deployed; no settings give what the target says by itself."""
    settings: TunerSettings

    @property
    def running(self) -> int:
        """Trials that are not over."""
        return sum(not trial.over for trial in self.trials)

    @property
    def baseline(self) -> TrialRecord | None:
        """The newest measurement of what runs today."""
        found = [trial for trial in self.trials if trial.spec.purpose == "Baseline" and not trial.stale]
        return found[-1] if found else None

    @property
    def name(self) -> str:
        """Of the experiment."""
        name: str = self.experiment["metadata"]["name"]
        return name
