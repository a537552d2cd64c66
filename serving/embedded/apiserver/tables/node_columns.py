"""Columns of a Node, as in printNode of k8s.io/kubernetes/pkg/printers/internalversion/printers.go."""

from datetime import datetime

from serving.objects import Object


def status(obj: Object, _now: datetime) -> str:
    """Return `Ready` or `NotReady`."""
    conditions = obj["status"].get("conditions") or ()
    ready = any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
    return "Ready" if ready else "NotReady"


def internal_ip(obj: Object, _now: datetime) -> str:
    """Return the first internal address."""
    addresses = obj["status"].get("addresses") or ()
    return next((entry["address"] for entry in addresses if entry["type"] == "InternalIP"), "<none>")
