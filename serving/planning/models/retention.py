"""Retention of model images: which versions are removed, and when a deleted version's image is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.objects import Object
from serving.planning.models import volume
from serving.planning.models.version import is_ready
from serving.resources import names
from serving.resources.kubernetes import conditions, pod_phases
from serving.resources.kubernetes.cluster_versions import ClusterVersions
from serving.resources.kubernetes.conditions import Condition
from serving.resources.tuning import experiment_status, trial

RELEASED = "Released"
"""Condition of a ModelVersion that is being deleted: False, with the users, while the version is in use."""
_NAMED_USERS = 3
"""Most users that a message names; it has the number of the others."""


def is_store_shared(versions: ClusterVersions) -> bool:
    """Whether Pods mount the images of the controllers' store, as on one machine, and not on a cluster.

    An API that lists no node is not that of a cluster, whose controllers run on its nodes.
    """
    return not versions.problem and (not versions.nodes or volume.is_one_machine(versions))


def versions_of_inference(inference: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the ModelVersions in an Inference's spec."""
    return frozenset(p["modelVersion"] for p in (inference.get("spec") or {}).get("predictors") or [])


def versions_of_deployment(deployment: Mapping[str, Any]) -> frozenset[str]:
    """Return the version that a revision serves, even if the Inference's spec no longer names it."""
    template = (deployment.get("spec") or {}).get("template") or {}
    return _annotated_version(template.get("metadata") or {})


def versions_of_pod(pod: Mapping[str, Any]) -> frozenset[str]:
    """Return the version that a Pod has mounted; none once the Pod has succeeded or failed."""
    if pod_phases.has_ended(pod):
        return frozenset()
    return _annotated_version(pod["metadata"])


def versions_of_experiment(experiment: Mapping[str, Any]) -> frozenset[str]:
    """Return the version that an experiment tunes, also between two Trials; none once it is over."""
    version = experiment["spec"]["target"].get("modelVersion")
    return frozenset({version}) if version and not experiment_status.is_over(experiment) else frozenset()


def versions_of_trial(measured: Mapping[str, Any]) -> frozenset[str]:
    """Return the version that a Trial measures, also before its Deployment exists; none once it has ended."""
    version, status = measured["spec"].get("modelVersion"), measured.get("status") or {}
    return frozenset({version}) if version and status.get("phase") not in trial.FINISHED else frozenset()


def _annotated_version(meta: Mapping[str, Any]) -> frozenset[str]:
    version = (meta.get("annotations") or {}).get(names.MODEL_VERSION_ANNOTATION)
    return frozenset({version}) if version else frozenset()


def surplus(
    versions: Iterable[Mapping[str, Any]], keep: int, used: Iterable[str]
) -> tuple[Mapping[str, Any], ...]:
    """Return the ready versions that retention removes, oldest first.

    Args:
        versions: the versions of one Model.
        keep: number of the newest ready versions that stay.
        used: names of versions in use, which stay in addition to the newest.
    """
    ready = sorted(
        (v for v in versions if is_ready(v)),
        key=lambda v: (v["metadata"]["creationTimestamp"], v["metadata"]["name"]),
    )
    kept = frozenset(used)
    return tuple(v for v in ready[: max(len(ready) - keep, 0)] if v["metadata"]["name"] not in kept)


@dataclass(frozen=True)
class KeepImage:
    """The image is in use; the message names its users."""

    message: str


@dataclass(frozen=True)
class ReleaseImage:
    """Remove the image with this digest from the store; then remove the finalizer."""

    digest: str = ""
    """Empty if the store keeps the image for others, or the version has no image."""


def on_deletion(
    version: Mapping[str, Any], users: Sequence[str], pinned_by: Sequence[str], shared_with: Sequence[str]
) -> KeepImage | ReleaseImage:
    """Return the next step for a ModelVersion that is being deleted.

    Args:
        version: the ModelVersion.
        users: names of the objects of the API that use the version.
        pinned_by: names of those, other than the version, that pin its image in the store.
        shared_with: other ModelVersions with the same digest, for which the image is kept.
    """
    if users:
        return KeepImage(f"used by {_named(users)}")
    digest = (version.get("status") or {}).get("digest", "")
    if not digest or shared_with:
        return ReleaseImage()
    return KeepImage(f"its image is pinned by {_named(pinned_by)}") if pinned_by else ReleaseImage(digest)


def _named(users: Sequence[str]) -> str:
    shown = ", ".join(sorted(users)[:_NAMED_USERS])
    more = len(users) - _NAMED_USERS
    return f"{shown} and {more} more" if more > 0 else shown


def kept_status(version: Mapping[str, Any], message: str, now: str) -> Object:
    """Return the status of a version whose deletion waits: its old status, with the condition `Released`."""
    status = dict(version.get("status") or {})
    stored = status.get("conditions") or []
    # `merge` keeps only conditions that are passed as new ones.
    others = [
        Condition(c["type"], c["status"], c["reason"], c.get("message", ""))
        for c in stored
        if c["type"] != RELEASED
    ]
    released = Condition(RELEASED, "False", "InUse", message)
    generation = status.get("observedGeneration", 1)
    status["conditions"] = conditions.merge(stored, [*others, released], generation=generation, now=now)
    return status


def is_reported(version: Mapping[str, Any], message: str) -> bool:
    """Whether the stored status has this message already."""
    released = conditions.find((version.get("status") or {}).get("conditions"), RELEASED)
    return released is not None and released.get("message") == message
