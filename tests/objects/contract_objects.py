"""Objects that the contract suite writes, and functions that wait for conditions."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from serving import errors
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds


def model(namespace: str, name: str = "m", **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "Model",
        "metadata": {"name": name, "namespace": namespace, **meta},
        "spec": {"description": "one"},
    }


def version(namespace: str, path: Path) -> dict[str, Any]:
    """Write a model below `path`; return the ModelVersion `v1` of it."""
    path.mkdir()
    (path / "model.bin").write_bytes(b"weights")
    (path / "slipway.json").write_text(json.dumps({"framework": "sklearn", "metrics": {"accuracy": 0.5}}))
    return {
        "apiVersion": kinds.MODEL_VERSION.api_version,
        "kind": "ModelVersion",
        "metadata": {"name": "v1", "namespace": namespace},
        "spec": {"modelName": "m", "source": {"path": str(path)}},
    }


def inference(namespace: str, name: str = "digits", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "Inference",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "framework": "sklearn",
            "predictors": [
                {"name": "stable", "modelVersion": "v1", "trafficWeight": 90},
                {"name": "canary", "modelVersion": "v2", "trafficWeight": 10},
            ],
            **spec,
        },
    }


def deployment(namespace: str, name: str = "d", **container: Any) -> dict[str, Any]:
    """Return a Deployment without replicas, so that no Pod runs."""
    body = {"name": "c", "image": "i", "command": ["sleep", "1"], **container}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [body]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    """Poll until the condition is true."""
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


async def gone(kube: Kube, kind: kinds.Kind, namespace: str | None, name: str) -> bool:
    try:
        await kube.get(kind, namespace, name)
    except errors.NotFound:
        return True
    return False


async def create_dry(kube: Kube, namespace: str, name: str, template: Object) -> None:
    """Let the API validate and admit a Pod, and store none."""
    body = {**template, "metadata": {**template["metadata"], "name": name}}
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    await kube.request("POST", kinds.POD.path(namespace), body=body, query=query)
