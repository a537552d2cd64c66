"""Objects of the product under test: manifests, and waits for their states."""

import asyncio
from collections.abc import Callable

from serving import clock
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions

POLL_SECONDS = 0.05
READY_SECONDS = 180.0


def manifest(kind: kinds.Kind, name: str, spec: Object) -> Object:
    """Return an object of the namespace default."""
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def is_ready(obj: Object) -> bool:
    return conditions.is_true(obj, "Ready")


async def until(
    kube: Kube,
    kind: kinds.Kind,
    name: str,
    holds: Callable[[Object], bool],
    *,
    seconds: float = READY_SECONDS,
    poll: float = POLL_SECONDS,
) -> Object:
    """Return the object once `holds` is true of it."""
    deadline = clock.monotonic() + seconds
    while not holds(obj := await kube.get(kind, "default", name)):
        if clock.monotonic() > deadline:
            raise RuntimeError(f"{kind.kind} {name}: {obj.get('status')}")
        await asyncio.sleep(poll)
    return obj
