"""The request of the controller to the search worker, and the plan in reply. Pure.

The search worker is another process: these values are pickled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from serving.objects import Object
from serving.planning.models.volume import VolumeSource
from serving.resources.engine import Engine
from serving.resources.kubernetes.cluster_versions import ClusterVersions
from serving.resources.kubernetes.events import EventToEmit
from serving.settings import DEFAULTS, RuntimeImageSettings
from tuner.settings import TunerSettings


@dataclass(frozen=True)
class RecordedExperiment:
    """An experiment with its Trials."""

    experiment: Object
    trials: Sequence[Object]


@dataclass(frozen=True)
class PlanRequest:
    """The request for the next step of an experiment."""

    recorded: RecordedExperiment
    inference: Object | None
    """The target's Inference; None if the target names none, or it does not exist."""
    model_versions: Mapping[str, Object]
    """The existing ModelVersions of the target, by name."""
    earlier: Sequence[RecordedExperiment]
    """Finished experiments with the same objective and parameters, the newest first."""
    settings: TunerSettings
    engines: Mapping[str, Engine]
    """The inference engines that the installation knows, by name."""
    runtime_images: RuntimeImageSettings = DEFAULTS.runtime_images
    """The images of Slipway's own model servers."""
    volume: VolumeSource = "image"
    """The source of the model's files."""
    cluster: ClusterVersions = field(default_factory=ClusterVersions)
    """The nodes, by which the mechanism of a share of a GPU is chosen; none where no spec needs it."""


@dataclass(frozen=True)
class ExperimentPlan:
    """The objects and the status to write, in this order."""

    trials: Sequence[Object] = ()
    """Trials to create; an existing Trial was created by an earlier attempt."""
    profile: Object | None = None
    """A CapacityProfile to create."""
    status: Object | None = None
    """None if the stored status is the same."""
    events: Sequence[EventToEmit] = ()
