"""Resources that kubectl knows and this server does not offer, with their replacements. Pure."""

from collections.abc import Mapping

from serving import errors
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.discovery import empty_kinds
from serving.embedded.apiserver.requests.paths import ResourcePath
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.resources.kinds import Kind

_REACH = (
    "an Inference is reached at its URL (kubectl get inferences), another container at the address of its"
    " Pod (kubectl get pods -o wide), from this machine"
)
_ONE_USER = "there is one user, the holder of the token, who may do all"

SUBRESOURCES: Mapping[tuple[str, str, str], str] = {
    ("", "pods", "exec"): (
        "exec and cp are not offered: read kubectl logs and kubectl describe pod, or run the command in a Job"
        " with the same image and volumes (kubectl create job)"
    ),
    ("", "pods", "attach"): "attach is not offered: use kubectl logs --follow",
    ("", "pods", "portforward"): f"port-forward is not offered: {_REACH}",
    ("", "pods", "proxy"): f"the proxy of a Pod is not offered: {_REACH}",
    ("", "services", "proxy"): f"the proxy of a Service is not offered: {_REACH}",
    ("", "pods", "ephemeralcontainers"): (
        "debug is not offered, as a Pod gets no further container: read kubectl logs and kubectl describe"
        " pod, or run a Job with the same image and volumes (kubectl create job)"
    ),
    ("", "pods", "eviction"): "eviction is not offered: use kubectl delete pod",
    ("", "pods", "resize"): "resize is not offered: change the resources of the Inference or the Deployment",
}
"""(Group, plural, subresource) → message, for Kubernetes' kinds; a custom kind has `Kind.not_offered`."""

RESOURCES: Mapping[tuple[str, str], str] = {
    ("autoscaling", "horizontalpodautoscalers"): (
        "horizontalpodautoscalers are not offered: use an Autoscaler of slipway.dev (kubectl explain "
        "autoscaler.spec)"
    ),
    ("metrics.k8s.io", "nodes"): "the usage of nodes is not offered: use kubectl top pod",
    ("apiextensions.k8s.io", "customresourcedefinitions"): (
        "customresourcedefinitions are not offered: the kinds are fixed (kubectl api-resources)"
    ),
    ("", "serviceaccounts"): f"serviceaccounts are not offered: {_ONE_USER}",
    **{
        ("rbac.authorization.k8s.io", plural): f"{plural} are not offered: {_ONE_USER}"
        for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
    },
}
"""(Group, plural) → message, for all versions."""

ROLLOUT_HISTORY = (
    "rollout history and undo are not offered, as a Deployment has no ReplicaSets of earlier revisions: apply"
    " the earlier manifest or use kubectl set image, and for an Inference set the earlier modelVersion"
)
NODES_ARE_READ_ONLY = "a Node is read only: it is this machine, which slipway up runs and slipway down stops"


def of_subresource(kind: Kind, subresource: str) -> str | None:
    """Return the message for a subresource that the kind lacks; None where there is none."""
    known = SUBRESOURCES.get((kind.group, kind.plural, subresource))
    return known or kind.not_offered.get(subresource)


def refusal(stored_kinds: StoredKinds, resource: ResourcePath) -> errors.ApiError:
    """Return the error for a resource that is not served.

    A subresource with a message is refused with a 405 and this message, any other resource with a 404, which
    has the message of RESOURCES if there is one.
    """
    kind = stored_kinds.at(resource.group, resource.version, resource.plural)
    if kind is not None and resource.subresource is not None:
        text = of_subresource(kind, resource.subresource)
        if text is not None:
            return status_errors.method_not_allowed(text)
    return status_errors.no_resource(RESOURCES.get((resource.group, resource.plural), ""))


def empty_kind_refusal(kind: Kind) -> errors.ApiError:
    """Return the 405 for a write or a watch of one of `empty_kinds.KINDS`, which only have empty lists."""
    name = status_errors.resource(kind)
    return status_errors.method_not_allowed(f"{name} are not offered: {empty_kinds.INSTEAD[kind]}")
