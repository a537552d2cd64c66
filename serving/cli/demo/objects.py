"""The demo's objects: reads the samples and waits for conditions."""

import asyncio
import contextlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

import yaml

from serving import clock, errors
from serving.kube import Kube
from serving.objects import Object
from serving.resources import conditions
from serving.resources.kinds import Kind

NAMESPACE = "default"
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.1


def sample(file: str) -> list[Object]:
    """Return the objects of a file of `manifests/samples`, in the demo's namespace."""
    text = (resources.files("serving.cli") / "samples" / file).read_text()
    return [
        {**body, "metadata": {**body["metadata"], "namespace": NAMESPACE}}
        for body in yaml.safe_load_all(text)
    ]


async def until(kube: Kube, kind: Kind, name: str, condition: str, *, bad: str = "") -> Object:
    """Wait for a condition and return the object.

    Raises:
        errors.UserError: it took too long, or the condition `bad` is True.
    """
    deadline = clock.monotonic() + WAIT_SECONDS
    current: Mapping[str, Any] | None = None
    while clock.monotonic() < deadline:
        with contextlib.suppress(errors.NotFound, errors.Unavailable):
            obj = await kube.get(kind, NAMESPACE, name)
            if conditions.is_true(obj, condition):
                return obj
            current = conditions.find((obj.get("status") or {}).get("conditions"), bad or condition)
            if bad and conditions.is_true(obj, bad):
                break
        await asyncio.sleep(POLL_SECONDS)
    reason = (
        f"{current.get('reason', '')}: {current.get('message', '')}"
        if current
        else "it has no such condition"
    )
    raise errors.UserError(f"{kind.kind} {name} did not become {condition}: {reason}")
