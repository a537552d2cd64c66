"""What planning says is to be done, and of what it is asked. Plain values: who asks and who answers are two processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.objects import Object
from serving.resources.events import EventToEmit
from tuner.settings import TunerSettings


@dataclass(frozen=True)
class RecordedExperiment:
    """An experiment with its Trials."""

    experiment: Object
    trials: Sequence[Object]


@dataclass(frozen=True)
class PlanRequest:
    """What is to be done next for an experiment?"""

    recorded: RecordedExperiment
    inference: Object | None
    """That it names; None where it names none, or there is none."""
    model_versions: Mapping[str, Object]
    """Those that the target may mean, by name, as far as they exist."""
    earlier: Sequence[RecordedExperiment]
    """Finished experiments with the same objective and parameters, the newest first."""
    settings: TunerSettings


@dataclass(frozen=True)
class ExperimentPlan:
    """What to write, in this order."""

    trials: Sequence[Object] = ()
    """To be created; one that is there already was made by an earlier try."""
    profile: Object | None = None
    """A CapacityProfile to be created."""
    status: Object | None = None
    """None where the stored one says the same."""
    events: Sequence[EventToEmit] = ()
