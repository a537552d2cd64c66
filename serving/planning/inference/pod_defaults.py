"""Defaults of a predictor's Pods for admission and scheduling, which the template's fields replace. Pure.

They must not depend on the number of replicas: they are in the hash of the revision, so that a changed bound
of an Autoscaler would start every replica again.
"""

from collections.abc import Mapping
from typing import Any

from serving.objects import Object
from serving.resources import names

RESTRICTED: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
"""What the Pod Security profile `restricted` requires of a container. Slipway's images have a user other than
root, by number. https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
_ROOT = 0
_SPREAD_OVER = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")


def security_context(defaults: Mapping[str, Any], pod: Mapping[str, Any], own: Mapping[str, Any]) -> Object:
    """Return the fields of a container's securityContext that the template neither sets nor contradicts.

    Args:
        defaults: the fields.
        pod: the Pod's securityContext in the template, which the container's would override.
        own: that of the container in the template.
    """
    excluded = {*pod}
    if own.get("runAsUser", pod.get("runAsUser")) == _ROOT:
        excluded.add("runAsNonRoot")  # no container starts with both
    if own.get("privileged"):
        excluded.add("allowPrivilegeEscalation")  # no API server accepts both
    return {field: value for field, value in defaults.items() if field not in excluded}


def topology_spread(inference: str) -> list[Object]:
    """Return the constraints by which a revision's replicas prefer other nodes and other zones."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            # A replica on a node with others serves; one that is not scheduled does not.
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {names.INFERENCE_LABEL: inference}},
            # A label's value is not known before the template's hash. Other revisions do not count, as they
            # end soon.
            "matchLabelKeys": [names.REVISION_LABEL],
        }
        for key in _SPREAD_OVER
    ]
