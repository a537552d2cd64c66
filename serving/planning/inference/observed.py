"""The objects that an Inference is planned from, as the controller read them: values only."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from serving.objects import Object
from serving.planning.models.volume import IMAGE, VolumeChoice
from serving.resources import kinds
from serving.resources.engine import Engine
from serving.resources.kinds import Kind
from serving.resources.kubernetes.cluster_versions import ClusterVersions
from serving.resources.kubernetes.conditions import StatusReason
from serving.settings import RuntimeImageSettings


@dataclass(frozen=True)
class ObservedObjects:
    """One Inference and the objects around it; mappings are by object name.

    Stale caches cost a retry, never a wrong deletion.
    """

    inference: Object
    model_versions: Mapping[str, Object]
    """Those that the spec names, and those that revisions serve."""
    deployments: Mapping[str, Object]
    services: Mapping[str, Object]
    autoscalers: Mapping[str, Object]
    route: Object | None
    gateways: frozenset[str]
    """Names of the live gateways: only their statuses count."""
    gateway_problems: Mapping[str, str] = field(default_factory=dict)
    """Why live gateways serve no requests, by name."""
    field_manager: str = ""
    """The field manager of the controller's own writes."""
    put_back_blocked: Collection[str] = ()
    """Revisions whose template must not be put back now: the last put-back was in vain, or too recent."""
    put_back_in_vain: Collection[str] = ()
    """Revisions whose Deployment has not changed since its template was put back. If the template differs
    nevertheless, a webhook edits it at each write, and another put-back would change nothing."""
    pods: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    """The Pods of each revision."""
    engines: Mapping[str, Engine] = field(default_factory=dict)
    """The engines that the installation knows, by name."""
    runtime_images: RuntimeImageSettings = field(default_factory=RuntimeImageSettings)
    """The images of Slipway's own model servers."""
    budgets: Mapping[str, Object] | None = None
    """The PodDisruptionBudgets; None where the API serves no such kind."""
    daemon_sets: Mapping[str, Object] | None = None
    """The DaemonSets that keep images on nodes; None where the API serves no such kind."""
    prefetch_refused: Mapping[str, str] = field(default_factory=dict)
    """Revisions whose DaemonSet the API has just rejected, with its message."""
    model_volume: VolumeChoice = IMAGE
    """The source of the model's files for new revisions."""
    cluster: ClusterVersions = field(default_factory=ClusterVersions)
    """The nodes, by which the mechanism of a share of a GPU is chosen; none where no predictor needs it."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Revisions whose Deployment the API has just rejected, with its message."""
    children_refused: Mapping[tuple[Kind, str], StatusReason] = field(default_factory=dict)
    """Why the API has just rejected a write of a child, by kind and name; `refused` and `prefetch_refused`
    are parts of it."""

    @property
    def is_of_cluster(self) -> bool:
        """Whether the API is that of a cluster: the API of one machine serves no DaemonSets."""
        return self.daemon_sets is not None

    def is_refused(self, kind: Kind, name: str) -> bool:
        """Whether the API has just rejected a write of this child, which is therefore left out."""
        if kind is kinds.DEPLOYMENT:
            return name in self.refused
        if kind is kinds.DAEMON_SET:
            return name in self.prefetch_refused
        return (kind, name) in self.children_refused
