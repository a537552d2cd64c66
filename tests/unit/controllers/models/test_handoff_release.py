"""A namespace that is being deleted does not wait for the hand-off of its Jobs."""

import pytest

from serving import errors, job_kinds
from serving.controllers.models.handoff import HandoffController
from serving.controllers.models.training_jobs import JobKey, TrainingJobs
from serving.kube import Watches
from serving.resources import kinds, names
from tests.fakes.kube import FakeKube
from tests.objects.finished_jobs import EMPTY_DIR, ended, training
from tests.rig.control_plane.convergence import QUICK, running

FORBIDDEN = errors.Forbidden(
    403,
    "Forbidden",
    "unable to create new content in namespace default because it is being terminated",
    (errors.Cause("metadata.namespace", "default is being terminated", errors.NAMESPACE_TERMINATING),),
)


async def reconciled(api: FakeKube, refusal: errors.ApiError) -> list[str]:
    """Return the finalizers of a completed Job that is being deleted, after a refused creation."""
    job = ended(training(EMPTY_DIR))
    job["metadata"] |= {
        "finalizers": [names.HANDOFF_FINALIZER],
        "annotations": {names.MODEL_ANNOTATION: "digits"},
        "deletionTimestamp": api.now,
    }
    api.add(kinds.JOB, job)
    watches = Watches(api)
    controller = HandoffController(api, QUICK, watches, TrainingJobs(watches, job_kinds.shipped()))
    async with running(watches.run()):
        await watches.of(kinds.JOB).synced.wait()
        await watches.of(kinds.MODEL_VERSION).synced.wait()
        api.fail_next(refusal)
        await controller.reconcile(JobKey(kinds.JOB.group, kinds.JOB.kind, "default", "train"))
    return [f for stored in api.find(kinds.JOB) for f in stored["metadata"].get("finalizers") or []]


async def test_a_job_is_released_when_its_namespace_is_being_deleted() -> None:
    assert await reconciled(FakeKube(), FORBIDDEN) == []


@pytest.mark.parametrize(
    "refusal",
    [
        errors.Forbidden(403, "Forbidden", "exceeded quota: versions"),
        errors.ApiError(400, "BadRequest", 'admission webhook "models" denied the request'),
    ],
    ids=lambda refusal: refusal.code,
)
async def test_a_job_is_kept_and_an_event_has_the_reason_when_its_version_is_refused(
    refusal: errors.ApiError,
) -> None:
    api = FakeKube()
    with pytest.raises(errors.Temporary, match=refusal.message):
        await reconciled(api, refusal)
    (job,), (event,) = api.find(kinds.JOB), api.find(kinds.EVENT_V1)
    assert job["metadata"]["finalizers"] == [names.HANDOFF_FINALIZER]
    assert (event["reason"], event["message"], event["involvedObject"]["name"]) == (
        "HandOffRefused",
        refusal.message,
        "train",
    )
