"""The names that the hand-off makes of those of a Job."""

from serving import job_kinds
from serving.controllers.models.handoff import HandoffController
from serving.controllers.models.training_jobs import JobKey, TrainingJobs
from serving.kube import Watches
from serving.objects import Object
from serving.planning.models.handoff import HANDED_OFF_ANNOTATION
from serving.resources import kinds, names
from tests.fakes.kube import FakeKube
from tests.objects.finished_jobs import EMPTY_DIR, ended, training
from tests.rig.control_plane.convergence import QUICK, running

NS = "default"


async def reconciled(api: FakeKube) -> Object:
    """Return the only Job after one step of its hand-off."""
    [stored] = api.find(kinds.JOB)
    watches = Watches(api)
    controller = HandoffController(api, QUICK, watches, TrainingJobs(watches, job_kinds.shipped()))
    async with running(watches.run()):
        await watches.of(kinds.JOB).synced.wait()
        await watches.of(kinds.MODEL_VERSION).synced.wait()
        await controller.reconcile(JobKey(kinds.JOB.group, kinds.JOB.kind, NS, stored["metadata"]["name"]))
    [after] = api.find(kinds.JOB)
    return after


async def test_an_event_says_that_no_model_can_have_the_name_when_the_job_is_held() -> None:
    for model, reasons in (("my.model", ["HandOffRefused"]), ("digits", [])):
        api, job = FakeKube(), training(EMPTY_DIR)
        job["metadata"]["annotations"] = {names.MODEL_ANNOTATION: model}
        api.add(kinds.JOB, job)
        held = await reconciled(api)
        assert held["metadata"]["finalizers"] == [names.HANDOFF_FINALIZER]
        events = api.find(kinds.EVENT_V1)
        assert [event["reason"] for event in events] == reasons
        assert all("slipway.dev/model must be" in event["message"] for event in events)


async def test_a_version_that_an_earlier_release_named_with_dots_is_not_created_again() -> None:
    api = FakeKube()
    job = ended(training(EMPTY_DIR, name="train-v1.2"))
    job["metadata"]["finalizers"] = [names.HANDOFF_FINALIZER]
    job["metadata"]["annotations"] = {names.MODEL_ANNOTATION: "digits"}
    uid = api.add(kinds.JOB, job)["metadata"]["uid"]
    earlier = f"train-v1.2-{uid.replace('-', '')[:5]}"
    source = {"job": {"name": "train-v1.2", "uid": uid}}
    api.add(
        kinds.MODEL_VERSION,
        {
            "metadata": {"name": earlier, "namespace": NS},
            "spec": {"modelName": "digits", "source": source},
            "status": {"phase": "Ready"},
        },
    )
    released = await reconciled(api)
    assert released["metadata"]["annotations"][HANDED_OFF_ANNOTATION] == earlier
    assert [version["metadata"]["name"] for version in api.find(kinds.MODEL_VERSION)] == [earlier]
