"""What planning an experiment reads. Values only; nothing is decided here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from serving.objects import Object
from serving.resources.experiment import ProfilingExperimentSpec, ProfilingExperimentStatus, Setting
from serving.resources.trial import TrialSpec, TrialStatus
from tuner.observation import SILENT
from tuner.planning.exchange import OVER
from tuner.search.problem import Observation
from tuner.settings import TunerSettings
from tuner.specs.rendering import Rendering
from tuner.specs.space import Space

Settings = tuple[Setting, ...]
Phase = Literal["Pending", "Running", "Confirming", "Suspended", "Succeeded", "Failed"]

RESTARTED = "LoadRestarted"
"""How the note of a Trial begins whose load generator died."""
LOAD_FAILED = "LoadFailed"


@dataclass(frozen=True)
class KnownTrial:
    """One Trial of the experiment."""

    name: str
    spec: TrialSpec
    status: TrialStatus
    index: int | None
    """Its row in the space; None for a baseline that lies beside it."""
    observation: Observation | None
    """What it says of its row; None while it runs, or where it says nothing."""
    stale: bool = False
    """It measured another model than the target has by now: it counts in the budget, and says nothing of a spec."""

    @property
    def over(self) -> bool:
        """Whether nothing more is coming."""
        return self.status.phase in OVER

    @property
    def says_nothing(self) -> bool:
        """Whether it ended without saying anything of its spec."""
        return self.over and self.status.reason in SILENT

    @property
    def failed_to_load(self) -> bool:
        """Whether it ended as its load could not be made."""
        return self.over and self.status.reason == LOAD_FAILED

    @property
    def load_is_wrong(self) -> bool:
        """Whether it ended as what it should send cannot be sent: a generator that died was started again, and noted."""
        return self.failed_to_load and not any(note.startswith(RESTARTED) for note in self.status.notes)

    @property
    def throughput(self) -> float | None:
        """Requests per second at the highest load that met the constraints."""
        return self.status.result.throughput.value if self.status.result is not None else None


@dataclass(frozen=True)
class ExperimentSnapshot:
    """One experiment whose space is valid and whose target is ready."""

    experiment: Object
    spec: ProfilingExperimentSpec
    status: ProfilingExperimentStatus
    """As stored."""
    space: Space
    trials: tuple[KnownTrial, ...]
    """By number."""
    render: Callable[[Settings], Rendering]
    """Gives a spec as it would be deployed; no settings give what the target says by itself."""
    settings: TunerSettings

    @property
    def running(self) -> int:
        """Trials that are not over."""
        return sum(not trial.over for trial in self.trials)

    @property
    def baseline(self) -> KnownTrial | None:
        """The newest measurement of what runs today."""
        found = [trial for trial in self.trials if trial.spec.purpose == "Baseline" and not trial.stale]
        return found[-1] if found else None

    @property
    def name(self) -> str:
        """Of the experiment."""
        name: str = self.experiment["metadata"]["name"]
        return name
