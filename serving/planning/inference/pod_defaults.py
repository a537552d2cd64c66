"""Defaults of a predictor's Pods for admission, which the template's fields replace. Pure.

They must not depend on the number of replicas: they are in the hash of the revision, so that a changed bound
of an Autoscaler would start every replica again.
"""

from collections.abc import Mapping
from typing import Any

from serving.objects import Object

RESTRICTED: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
"""What the Pod Security profile `restricted` requires of a container. Slipway's images have a user other than
root, by number. https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
_ROOT = 0


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
