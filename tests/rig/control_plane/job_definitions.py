"""Definitions of other projects' job kinds on a cluster, and what the operators of these kinds would do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from serving import errors
from serving.kube import Kube, discovery
from serving.objects import Object
from serving.planning.models.job_kind import JobKind
from serving.resources import names
from serving.resources.kinds import Kind
from tests.objects.contract_objects import eventually, gone
from tests.objects.training_jobs import definition, served, status_of

CRD = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
SECONDS = 60.0


@asynccontextmanager
async def defined(kube: Kube, *rows: JobKind) -> AsyncIterator[None]:
    """Define these kinds, and remove them with all their jobs at the end.

    The test is skipped on a cluster that has one of them: its operator would act on the jobs.
    """
    present = await discovery.served(kube, [row.api_kind for row in rows])
    if having := [str(optional) for optional, kind in present.items() if kind is not None]:
        pytest.skip(f"the cluster has {', '.join(having)} already")
    try:
        for row in rows:
            await kube.create(CRD, definition(row))
        for row in rows:
            await eventually(lambda row=row: _is_served(kube, row), SECONDS)
        yield
    finally:
        for row in rows:
            await _release(kube, row)
            await kube.delete(CRD, None, str(row.api_kind))
        for row in rows:
            await eventually(lambda row=row: gone(kube, CRD, None, str(row.api_kind)), SECONDS)


async def _is_served(kube: Kube, row: JobKind) -> bool:
    try:
        await kube.list(served(row))
    except errors.NotFound:
        return False
    return True


async def _release(kube: Kube, row: JobKind) -> None:
    """Remove the finalizers of all jobs, as no controller may run to do that."""
    try:
        jobs = (await kube.list(served(row))).items
    except errors.NotFound:  # the test has deleted the definition
        return
    for job in jobs:
        meta = job["metadata"]
        if meta.get("finalizers"):
            await kube.delete(served(row), meta["namespace"], meta["name"])
            try:
                patch = {"metadata": {"finalizers": None}}
                await kube.patch(served(row), meta["namespace"], meta["name"], patch)
            except errors.NotFound:
                continue  # a controller was faster


async def until_held(kube: Kube, kind: Kind, namespace: str, name: str, *, held: bool) -> Object:
    """Wait until the job has the hand-off's finalizer, or has it no more; returns the job."""
    stored: list[Object] = []

    async def holds() -> bool:
        stored.append(await kube.get(kind, namespace, name))
        return (names.HANDOFF_FINALIZER in (stored[-1]["metadata"].get("finalizers") or [])) == held

    await eventually(holds, SECONDS)
    return stored[-1]


async def end(kube: Kube, row: JobKind, namespace: str, name: str, outcome: str) -> None:
    """Write the status of a job that has succeeded or failed."""
    status = status_of(row.succeeded if outcome == "Succeeded" else row.failed)
    await kube.patch(served(row), namespace, name, {"status": status}, subresource="status")
