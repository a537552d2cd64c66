"""The demo's objects: reads the samples, waits for conditions, and trains."""

import asyncio
from collections.abc import Callable, Mapping
from importlib import resources

import orjson
import yaml

from serving import clock, errors
from serving.cli.demo.console import Story
from serving.cli.output import tables
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.kinds import Kind
from serving.resources.kubernetes import conditions

NAMESPACE = "default"
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.1
_FAILED = "Failed"
"""Condition of a Job, and phase of a ModelVersion, that is final."""


def sample(file: str) -> list[Object]:
    """Return the objects of a file of `manifests/samples`, which the package contains, in the demo's
    namespace.
    """
    text = (resources.files("serving.cli") / "samples" / file).read_text()
    return [
        {**body, "metadata": {**body["metadata"], "namespace": NAMESPACE}}
        for body in yaml.safe_load_all(text)
    ]


async def train(
    story: Story,
    kube: Kube,
    file: str,
    columns: Mapping[str, str],
    *,
    seconds: float = WAIT_SECONDS,
    change: Callable[[Object], Object] | None = None,
) -> None:
    """Run the Jobs of a sample, and show the ModelVersions that they become.

    Args:
        story: prints the steps.
        kube: a client.
        file: of `manifests/samples`.
        columns: metrics of the models, by the headers of their columns.
        seconds: longest wait for each Job.
        change: returns the Job to apply for a Job of the sample; None to apply the sample's.
    """
    jobs = sample(file) if change is None else [change(job) for job in sample(file)]
    story.step(f"Training two models: slipway apply -f manifests/samples/{file}")
    for job in jobs:
        await kube.apply(kinds.JOB, job, manager="slipway")
    for job in jobs:
        story.doing(f"waiting for Job {job['metadata']['name']}")
        await until(kube, kinds.JOB, job["metadata"]["name"], "Complete", seconds=seconds)
    story.step("Each finished Job becomes a ModelVersion with an OCI image")
    rows = []
    for job in jobs:
        name = job["metadata"]["annotations"][names.MODEL_VERSION_ANNOTATION]
        story.doing(f"waiting for ModelVersion {name}")
        status = (await until(kube, kinds.MODEL_VERSION, name, "Ready"))["status"]
        values = [f"{status['metrics'].get(metric, float('nan')):.4f}" for metric in columns.values()]
        rows.append([name, status["lineage"]["name"], *values, status["size"], status["digest"]])
    story.show(tables.text(["ModelVersion", "Job", *columns, "Bytes", "Digest"], rows))


async def until(
    kube: Kube, kind: Kind, name: str, condition: str, *, seconds: float = WAIT_SECONDS
) -> Object:
    """Wait for a condition and return the object.

    Raises:
        errors.UserError: it took too long, or the object has failed for good.
    """
    deadline = clock.monotonic() + seconds
    state = "it does not exist"
    while True:
        try:
            obj = await kube.get(kind, NAMESPACE, name)
        except errors.NotFound:
            state = "it does not exist"
        except errors.Unavailable as error:
            state = str(error)
        else:
            if conditions.is_true(obj, condition):
                return obj
            state = _state(obj, condition)
            if _has_failed(obj):
                raise errors.UserError(f"{kind.kind} {name} failed: {state}")
        if clock.monotonic() >= deadline:
            raise errors.UserError(
                f"{kind.kind} {name} did not become {condition} within {seconds:g} s: {state}"
            )
        await asyncio.sleep(POLL_SECONDS)


def _has_failed(obj: Object) -> bool:
    """Whether a Job, or the build of a ModelVersion, has failed for good."""
    return conditions.is_true(obj, _FAILED) or (obj.get("status") or {}).get("phase") == _FAILED


def _state(obj: Object, condition: str) -> str:
    """Return the reason in an object's status for a condition that is not True, or else the status."""
    status = obj.get("status") or {}
    current = conditions.find(status.get("conditions"), _FAILED) or conditions.find(
        status.get("conditions"), condition
    )
    if current is not None:
        return f"{current.get('reason', '')}: {current.get('message', '')}"
    return f"its status is {orjson.dumps(status).decode()}" if status else "it has no status"
