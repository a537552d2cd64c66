"""Who uses a model image, and what that means: which versions retention removes, and when a deleted one may go."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.objects import Object
from serving.resources import conditions, names
from serving.resources.conditions import Condition

RELEASED = "Released"
"""Condition of a ModelVersion that is being deleted: False with who uses it, as long as somebody does."""
_SHOWN = 3


def versions_of_inference(inference: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the ModelVersions that its spec refers to."""
    return frozenset(p["modelVersion"] for p in (inference.get("spec") or {}).get("predictors") or [])


def versions_of_deployment(deployment: Mapping[str, Any]) -> frozenset[str]:
    """Return the version that a revision serves, also one that the Inference's spec no longer names."""
    template = (deployment.get("spec") or {}).get("template") or {}
    return _annotated(template.get("metadata") or {})


def versions_of_pod(pod: Mapping[str, Any]) -> frozenset[str]:
    """Return the version that a Pod has mounted; none once its containers have ended for good."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return frozenset()
    return _annotated(pod["metadata"])


def _annotated(meta: Mapping[str, Any]) -> frozenset[str]:
    found = (meta.get("annotations") or {}).get(names.MODEL_VERSION_ANNOTATION)
    return frozenset({found}) if found else frozenset()


def surplus(
    versions: Iterable[Mapping[str, Any]], keep: int, used: Iterable[str]
) -> tuple[Mapping[str, Any], ...]:
    """Return the ready versions that retention removes, oldest first.

    Args:
        versions: of one Model.
        keep: how many of the newest ready ones stay.
        used: names of those that are in use; they stay too, beside the newest.
    """
    ready = sorted(
        (v for v in versions if is_ready(v)),
        key=lambda v: (v["metadata"]["creationTimestamp"], v["metadata"]["name"]),
    )
    spared = frozenset(used)
    return tuple(v for v in ready[: max(len(ready) - keep, 0)] if v["metadata"]["name"] not in spared)


def is_ready(version: Mapping[str, Any]) -> bool:
    """Whether it is ready and is not being deleted."""
    is_going = "deletionTimestamp" in version["metadata"]
    return (version.get("status") or {}).get("phase") == "Ready" and not is_going


@dataclass(frozen=True)
class Await:
    """Somebody uses the image; the message says who."""

    message: str


@dataclass(frozen=True)
class Release:
    """Take the finalizer off; before that, remove the image of this digest from the store, where there is one."""

    digest: str = ""


def release(
    version: Mapping[str, Any], users: Sequence[str], pinned: Sequence[str], shared_with: Sequence[str]
) -> Await | Release:
    """Return what to do for a ModelVersion that is being deleted.

    Args:
        version: the ModelVersion.
        users: objects of the API that use it.
        pinned: who else has pinned its image in the store.
        shared_with: other ModelVersions of the same digest; the image then stays, whoever has pinned it.
    """
    if users:
        return Await(f"used by {_some(users)}")
    digest = (version.get("status") or {}).get("digest", "")
    if not digest or shared_with:
        return Release()
    return Await(f"its image is pinned by {_some(pinned)}") if pinned else Release(digest)


def _some(found: Sequence[str]) -> str:
    shown = ", ".join(sorted(found)[:_SHOWN])
    more = len(found) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def awaiting(version: Mapping[str, Any], message: str, now: str) -> Object:
    """Return the status of a version whose deletion waits: as it was, with the condition that says for whom."""
    status = dict(version.get("status") or {})
    old = status.get("conditions") or []
    kept = [
        Condition(c["type"], c["status"], c["reason"], c.get("message", ""))
        for c in old
        if c["type"] != RELEASED
    ]
    said = [*kept, Condition(RELEASED, "False", "InUse", message)]
    generation = status.get("observedGeneration", 1)
    status["conditions"] = conditions.merge(old, said, generation=generation, now=now)
    return status


def is_said(version: Mapping[str, Any], message: str) -> bool:
    """Whether the stored status says so already."""
    found = conditions.find((version.get("status") or {}).get("conditions"), RELEASED)
    return found is not None and found.get("message") == message
