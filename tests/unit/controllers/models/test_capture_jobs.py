"""Which capture Jobs the controllers delete."""

import pytest

from serving.controllers.models.capture_jobs import CaptureJobs
from serving.kube import Watches
from serving.objects import Object
from serving.planning.models import capture_job
from serving.resources import kinds
from serving.settings import DEFAULTS
from tests.fakes.kube import FakeKube
from tests.objects.finished_jobs import EMPTY_DIR, ended, training
from tests.rig.control_plane.convergence import running

VERSION: Object = {"metadata": {"name": "v1", "namespace": "default", "uid": "u1"}}


async def remaining(end: str, owner: str = "u1", *, keep_ended: bool) -> list[str]:
    """Return the Jobs that are left of one with the name of a capture, which has ended so or runs."""
    api = FakeKube()
    job = training(EMPTY_DIR, name=capture_job.name(VERSION))
    reference = {"apiVersion": "slipway.dev/v1alpha1", "kind": "ModelVersion", "name": "v1", "uid": owner}
    job["metadata"]["ownerReferences"] = [reference]
    api.add(kinds.JOB, ended(job, end) if end else job)
    watches = Watches(api)
    jobs = watches.of(kinds.JOB)
    async with running(watches.run()):
        await jobs.synced.wait()
        await CaptureJobs(api, jobs, DEFAULTS).discard(VERSION, keep_ended=keep_ended)
    return [stored["metadata"]["name"] for stored in api.find(kinds.JOB)]


@pytest.mark.parametrize("end", ["", "Complete", "Failed"])
async def test_the_capture_of_a_ready_version_is_deleted(end: str) -> None:
    assert await remaining(end, keep_ended=False) == []


@pytest.mark.parametrize("end", ["Complete", "Failed"])
async def test_the_capture_of_a_failed_version_stays_when_it_has_ended(end: str) -> None:
    assert await remaining(end, keep_ended=True) == ["capture-v1-u1"]


async def test_the_capture_of_a_failed_version_is_deleted_while_it_runs() -> None:
    assert await remaining("", keep_ended=True) == []


async def test_a_job_of_somebody_else_with_the_name_of_a_capture_stays() -> None:
    assert await remaining("", "u2", keep_ended=False) == ["capture-v1-u1"]
