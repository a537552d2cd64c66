"""Deployments of one container, for tests of what reads or scales them."""

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
    """Return one; `container` replaces fields of its container."""
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i", **container}]},
    }
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
        **({"status": status} if status is not None else {}),
    }
