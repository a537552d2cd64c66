"""Deployments of one container."""

from typing import Any


def deployment(
    name: str,
    replicas: int = 1,
    *,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
    **container: Any,
) -> dict[str, Any]:
    """Return a Deployment; `container` replaces fields of its container."""
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i", **container}]},
    }
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
        **({"status": status} if status is not None else {}),
    }
