"""Defaults by which Pod Security admits a predictor's Pods; fields of its template replace them. Pure.

The defaults are part of the template that a revision's name hashes. They must not depend on the number of
replicas: otherwise a changed bound of the Autoscaler would replace every replica.
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
"""The fields that the Pod Security profile `restricted` requires of a container. Slipway's images have a user
other than root, by number. https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
_ROOT = 0
_ADMIN = "CAP_SYS_ADMIN"
"""The capability, in this spelling alone, that an API server refuses where privileges cannot be gained."""


def security_context(defaults: Mapping[str, Any], pod: Mapping[str, Any], own: Mapping[str, Any]) -> Object:
    """Return the defaults of a container's securityContext that the template neither sets nor contradicts.

    Args:
        defaults: the default fields.
        pod: the Pod's securityContext in the template. Its fields are excluded, as a field of the container
            would override them.
        own: the container's securityContext in the template, which the caller merges over the result.
    """
    excluded = {*pod}
    if own.get("runAsUser", pod.get("runAsUser")) == _ROOT:
        excluded.add("runAsNonRoot")  # no container starts with both
    added = (own.get("capabilities") or {}).get("add") or ()
    if own.get("privileged") or _ADMIN in added:
        excluded.add("allowPrivilegeEscalation")  # no API server accepts both
    return {field: value for field, value in defaults.items() if field not in excluded}
