"""Kinds of Kubernetes of which this server never has an object: their lists are empty, a write says what to
use.

They are the kinds that `kubectl apply --prune` lists when it is given no list of kinds
(k8s.io/kubectl/pkg/util/prune/prune.go), without those that are stored. Pure.
"""

from collections.abc import Mapping

from serving.resources.kinds import Kind

VERBS = ["get", "list"]


def _kind(
    group: str, name: str, plural: str, short: tuple[str, ...] = (), *, namespaced: bool = True
) -> Kind:
    return Kind(group, "v1", name, plural, short, namespaced=namespaced, status=False)


REPLICA_SET = _kind("apps", "ReplicaSet", "replicasets", ("rs",))
_USE_DEPLOYMENT = "use a Deployment"
_USE_VOLUME = "use a volume of type emptyDir or hostPath"

INSTEAD: Mapping[Kind, str] = {
    REPLICA_SET: _USE_DEPLOYMENT,
    _kind("", "ReplicationController", "replicationcontrollers", ("rc",)): _USE_DEPLOYMENT,
    _kind("apps", "StatefulSet", "statefulsets", ("sts",)): _USE_DEPLOYMENT,
    _kind("apps", "DaemonSet", "daemonsets", ("ds",)): f"{_USE_DEPLOYMENT}: there is one node",
    _kind("batch", "CronJob", "cronjobs", ("cj",)): "create a Job whenever one is due",
    _kind("", "Endpoints", "endpoints", ("ep",)): "use an EndpointSlice",
    _kind("", "PersistentVolumeClaim", "persistentvolumeclaims", ("pvc",)): _USE_VOLUME,
    _kind("", "PersistentVolume", "persistentvolumes", ("pv",), namespaced=False): _USE_VOLUME,
    _kind("networking.k8s.io", "Ingress", "ingresses", ("ing",)): (
        "use an Inference: the gateway serves it by host and path"
    ),
}
"""Each kind, with what a message tells its user to do instead."""
KINDS: tuple[Kind, ...] = tuple(INSTEAD)


def find(group: str, version: str, plural: str) -> Kind | None:
    """Find a kind by the parts of its path; None if it is not one of these."""
    return next((k for k in KINDS if (k.group, k.version, k.plural) == (group, version, plural)), None)
