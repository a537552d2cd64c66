"""Chooses the mechanism of a share of a GPU by the resources of the nodes. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from serving import errors
from serving.objects import Object
from serving.planning.gpu import pod
from serving.planning.gpu.share import Mechanism, RenderedShare
from serving.planning.models.volume import is_one_machine
from serving.resources.inference import Gpu, Predictor
from serving.resources.kubernetes.cluster_versions import ClusterVersions, NodeVersions

AUTO: Final = "auto"
_PREFERENCE: tuple[Mechanism, ...] = ("mig", "ack", "hami", "mps")
"""Order of the choice. A node without MPS has the resource of `mps` too, so that the mechanisms whose
resources a node has only if it divides its GPUs come first. `dra` has no resources of nodes."""


@dataclass(frozen=True)
class MechanismChoice:
    """The mechanism of new revisions of a predictor, and why."""

    mechanism: Mechanism
    reason: str = ""
    is_offered: bool = True
    """Whether a node has the mechanism's resources. If none has, the mechanism is an assumption, which
    replaces no revision of another one: a device plugin that restarts takes its resources away for a time."""


def is_open(resources: Mapping[str, Any] | None) -> bool:
    """Whether `resources` of a predictor, as JSON, have a share of a GPU whose mechanism is chosen."""
    gpu: Mapping[str, Any] = (resources or {}).get("gpu") or {}
    return bool(gpu) and gpu.get("mechanism", AUTO) == AUTO


def is_open_in(inference: Object) -> bool:
    """Whether the mechanism of a predictor of this Inference is chosen."""
    return any(is_open(predictor.get("resources")) for predictor in inference["spec"].get("predictors") or [])


def choose(predictor: Predictor, cluster: ClusterVersions) -> MechanismChoice | None:
    """Return the mechanism of new revisions of a predictor; None without a share of a GPU.

    With `auto`, one node with the resources is enough, as the scheduler places the Pods by them. A cordoned
    node counts too. If no node has the resources of a mechanism, the mechanism is `mps`: an autoscaler of
    nodes adds one with a GPU only for a Pod that requests it.
    """
    gpu = predictor.resources.gpu
    if gpu is None:
        return None
    if gpu.mechanism != AUTO:
        return MechanismChoice(gpu.mechanism, f"resources.gpu.mechanism is {gpu.mechanism}")
    if is_one_machine(cluster):
        return MechanismChoice("mps", "one machine shares its GPU by mps")
    if cluster.problem:
        return MechanismChoice("mps", f"the nodes are unknown: {cluster.problem}", is_offered=False)
    selector = predictor.template.node_selector if predictor.template is not None else {}
    nodes = [node for node in cluster.nodes.values() if node.operating_system != "windows"]
    lacking = []
    for mechanism, share in _renderings(gpu):
        needed = {**selector, **share.node_selector}
        if any(_offers(node, share, needed) for node in nodes):
            return MechanismChoice(mechanism, f"nodes have {_needs(share, needed)}")
        lacking.append(f"{_needs(share, needed)} ({mechanism})")
    return MechanismChoice("mps", f"no node has {', or '.join(lacking)}", is_offered=False)


def alternatives(choice: MechanismChoice | None, predictor: Predictor) -> list[Mechanism | None]:
    """Return the mechanism of new revisions, then those that older revisions may have by another choice."""
    gpu = predictor.resources.gpu
    if choice is None or gpu is None:
        return [None]
    others = [mechanism for mechanism, _ in _renderings(gpu)] if gpu.mechanism == AUTO else []
    return [choice.mechanism, *(each for each in others if each != choice.mechanism)]


def with_mechanism(predictor: Predictor, mechanism: Mechanism | None) -> Predictor:
    """Return the predictor with the mechanism in place of `auto`; unchanged without a share of a GPU."""
    resources = predictor.resources
    if resources.gpu is None or mechanism is None:
        return predictor
    gpu = resources.gpu.model_copy(update={"mechanism": mechanism})
    return predictor.model_copy(update={"resources": resources.model_copy(update={"gpu": gpu})})


def _renderings(gpu: Gpu) -> Iterator[tuple[Mechanism, RenderedShare]]:
    """Yield the mechanisms of the choice that have this share, in order.

    MIG needs the GPU's type.
    """
    for mechanism in _PREFERENCE:
        try:
            share = pod.render(gpu.model_copy(update={"mechanism": mechanism}))
        except errors.Permanent:
            continue
        yield mechanism, share


def _offers(node: NodeVersions, share: RenderedShare, labels: Mapping[str, str]) -> bool:
    return share.limits.keys() <= node.resources and labels.items() <= node.labels.items()


def _needs(share: RenderedShare, labels: Mapping[str, str]) -> str:
    """Return the resources, and the labels of the nodes that count."""
    resources = " and ".join(share.limits)
    shown = " and ".join(f"{name}={value}" for name, value in labels.items())
    return f"{resources} with {shown}" if shown else resources
