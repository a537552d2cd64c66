"""The DaemonSets that pull the images of a revision on every node that may run it, and their state. Pure.

The kubelet of a node pulls the images for the DaemonSet's Pod, which mounts them as image volumes and waits.
No revision waits for its DaemonSet: it starts, is proven and serves without.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from serving.objects import Object
from serving.planning.inference import children, pod_defaults
from serving.planning.inference.arms import Arm
from serving.planning.inference.inference_state import InferenceState
from serving.planning.inference.observed import ObservedObjects
from serving.planning.inference.plan import Ensure
from serving.planning.inference.revision import Revision
from serving.resources import kinds, names
from serving.resources.kubernetes.conditions import StatusReason
from serving.settings import RuntimeImageSettings

_PREFETCHING = "Prefetching"
"""Reason of `problem` while nodes pull the images."""
_CONTAINER = "wait"
_COPIED = ("runtimeClassName", "serviceAccountName")
"""Fields that are copied from the replica's Pod; the service account may have pull Secrets. `pod_spec` makes
the fields that select nodes. All others are left out: with `priorityClassName` the Pods would displace work,
with `schedulerName` a scheduler of jobs would queue them, and rules about other Pods are for replicas."""
_LINUX = {"kubernetes.io/os": "linux"}
"""The images are for Linux: on other nodes a Pod would never start."""
_RESOURCES: Mapping[str, Mapping[str, str]] = {
    "requests": {"cpu": "1m", "memory": "16Mi"},
    "limits": {"cpu": "50m", "memory": "32Mi"},
}
"""For a program that only waits. The limits leave room for runc, which starts the program within them."""
_GRACE_SECONDS = 1
"""The Pods have no requests to finish."""


class Coverage(NamedTuple):
    """The number of nodes that may run a revision, and of those that have its images."""

    nodes: int
    ready_nodes: int


def daemon_sets(state: InferenceState, arms: Sequence[Arm]) -> list[Ensure]:
    """Return the DaemonSet of the newest revision of every arm with `prefetch` and an image volume.

    A DaemonSet has the name of its revision.
    """
    if state.observed.daemon_sets is None:
        return []
    revisions = [arm.desired for arm in arms if arm.predictor.prefetch and arm.desired is not None]
    return [
        _daemon_set(state, revision) for revision in revisions if _obstacle(state.observed, revision) is None
    ]


def coverage(state: InferenceState, arm: Arm) -> Coverage | None:
    """Return how many nodes have the images of an arm's newest revision.

    None without `prefetch`, and until the DaemonSet's status is of its newest spec.
    """
    if not arm.predictor.prefetch or arm.desired is None:
        return None
    stored = (state.observed.daemon_sets or {}).get(arm.desired.name) or {}
    status = stored.get("status") or {}
    if not status or status.get("observedGeneration", 0) < stored["metadata"].get("generation", 1):
        return None
    # Ready Pods may be of an older template, and updated Pods may not be ready.
    ready = min(status.get("numberReady", 0), status.get("updatedNumberScheduled", 0))
    return Coverage(status.get("desiredNumberScheduled", 0), ready)


def problem(state: InferenceState, arm: Arm) -> StatusReason | None:
    """Return why a node may lack the images of an arm with `prefetch`, or None."""
    if arm.desired is None:
        return arm.model_problem or arm.rollout_problem
    if (obstacle := _obstacle(state.observed, arm.desired)) is not None:
        return obstacle
    name, counts = arm.desired.name, coverage(state, arm)
    if counts is None:
        return StatusReason(_PREFETCHING, f"revision {name}: its DaemonSet has reported no nodes yet")
    if counts.ready_nodes < counts.nodes:
        message = f"revision {name}: {counts.ready_nodes} of {counts.nodes} nodes have its images"
        return StatusReason(_PREFETCHING, message)
    return None


def _obstacle(observed: ObservedObjects, revision: Revision) -> StatusReason | None:
    """Return why a revision has no DaemonSet, or not the newest one."""
    name = revision.name
    if name in observed.refused:
        return StatusReason("RevisionRefused", f"revision {name} was refused: {observed.refused[name]}")
    if revision.volume == "copy":
        return StatusReason("ModelCopied", f"revision {name}: its Pods copy the model and mount no image")
    if name in observed.prefetch_refused:
        message = f"revision {name}: its DaemonSet was refused: {observed.prefetch_refused[name]}"
        return StatusReason("PrefetchRefused", message)
    return None


def _daemon_set(state: InferenceState, revision: Revision) -> Ensure:
    labels = {names.PREDICTOR_LABEL: revision.arm, names.REVISION_LABEL: revision.name}
    meta = children.metadata(state.observed.inference, revision.name, labels)
    body = {"metadata": meta, "spec": daemon_set_spec(revision, state.observed.runtime_images)}
    return Ensure(kinds.DAEMON_SET, body)


def daemon_set_spec(revision: Revision, images: RuntimeImageSettings) -> Object:
    """Return the spec of the DaemonSet of a revision with an image volume.

    Args:
        revision: the revision.
        images: the settings of Slipway's own images.
    """
    labels = {names.PREFETCH_LABEL: revision.name}
    pod = pod_spec(revision.template["spec"], images)
    return {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
        # The Pods serve nobody, and a node that is down must not hold the others up.
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
    }


def pod_spec(replica: Mapping[str, Any], images: RuntimeImageSettings) -> Object:
    """Return the spec of a Pod that mounts the images of a replica, and waits, on any node that may run it.

    While the Pod exists, the kubelet does not remove the images.

    Args:
        replica: the spec of the replica's Pod, with the model in an image volume.
        images: the settings of Slipway's own images.
    """
    volumes = list(_volumes(replica))
    mounts = [
        {"name": volume["name"], "mountPath": f"/mnt/{volume['name']}", "readOnly": True}
        for volume in volumes
    ]
    container: Object = {
        "name": _CONTAINER,
        "image": images.waiter,
        "resources": {kind: dict(amounts) for kind, amounts in _RESOURCES.items()},
        "securityContext": {**pod_defaults.RESTRICTED, "readOnlyRootFilesystem": True},
        "volumeMounts": mounts,
    }
    secrets = [*(replica.get("imagePullSecrets") or [])]
    waiter_secret = {"name": images.pull_secret}
    if images.pull_secret and waiter_secret not in secrets:
        secrets.append(waiter_secret)
    tolerations = [*(replica.get("tolerations") or []), *_device_tolerations(replica)]
    affinity = (replica.get("affinity") or {}).get("nodeAffinity")
    return {
        "containers": [container],
        "volumes": volumes,
        "nodeSelector": {**_LINUX, **(replica.get("nodeSelector") or {})},
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        **{field: replica[field] for field in _COPIED if field in replica},
        **({"affinity": {"nodeAffinity": affinity}} if affinity else {}),
        **({"tolerations": tolerations} if tolerations else {}),
        **({"imagePullSecrets": secrets} if secrets else {}),
    }


def _volumes(replica: Mapping[str, Any]) -> Iterator[Object]:
    """Yield an image volume for each image of a replica.

    Images of containers are mounted too instead of run, as their programs would not wait.
    """
    yield from (volume for volume in replica["volumes"] if "image" in volume)
    policies: dict[str, str] = {}
    for container in replica["containers"]:
        reference, policy = container.get("image"), container.get("imagePullPolicy") or ""
        if reference and policy != "Never":
            policies.setdefault(reference, policy)
    for number, (reference, policy) in enumerate(policies.items()):
        image = {"reference": reference, **({"pullPolicy": policy} if policy else {})}
        yield {"name": f"image-{number}", "image": image}


def _device_tolerations(replica: Mapping[str, Any]) -> list[Object]:
    """Return the tolerations that a replica gets by its extended resources, such as GPUs.

    The admission plugin ExtendedResourceToleration adds them to the replica, but not to the waiting Pod, as
    it requests no extended resource:
    https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#extendedresourcetoleration
    """
    requested = [
        name
        for container in replica["containers"]
        for kind in ("requests", "limits")
        for name in (container.get("resources") or {}).get(kind) or {}
        if "/" in name
    ]
    tolerations: list[Object] = [
        {"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in dict.fromkeys(requested)
    ]
    return [toleration for toleration in tolerations if toleration not in (replica.get("tolerations") or [])]
