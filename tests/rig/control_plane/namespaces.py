"""Removes a suite's namespaces: one with an object that keeps a finalizer never ends, nor does its CRD."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from serving import errors
from serving.kube import Kube, connect
from serving.resources import kinds
from tests.objects.contract_objects import eventually, gone

WITH_FINALIZERS = (*kinds.OWN, kinds.JOB)
"""Kinds whose objects get finalizers of our controllers, or of tests."""
END_SECONDS = 120.0
"""Longest end of the suite's namespaces; a cluster empties one in some seconds."""


async def delete(kube: Kube, name: str) -> None:
    """Delete a namespace, and the finalizers of its objects, as no controller may run to remove them."""
    for kind in WITH_FINALIZERS:
        for held in (await kube.list(kind, name)).items:
            if held["metadata"].get("finalizers"):
                await kube.delete(kind, name, held["metadata"]["name"])
                with contextlib.suppress(errors.NotFound):  # a controller was faster
                    released = {"metadata": {"finalizers": None}}
                    await kube.patch(kind, name, held["metadata"]["name"], released)
    await kube.delete(kinds.NAMESPACE, None, name)


async def until_gone(kubeconfig: Path, names: Sequence[str]) -> None:
    """Wait until deleted namespaces have ended.

    Raises:
        TimeoutError: one remains, as an object of it keeps a finalizer.
    """
    async with await connect(kubeconfig, component="contract") as kube:
        for name in names:
            await eventually(lambda name=name: gone(kube, kinds.NAMESPACE, None, name), END_SECONDS)
