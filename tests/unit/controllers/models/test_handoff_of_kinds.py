"""The hand-off of jobs of other projects' kinds: appearing, disappearing and nested ones."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from serving import errors, job_kinds
from serving.controllers.models.handoff import HandoffController
from serving.controllers.models.model import ModelController
from serving.controllers.models.modelversion import ModelVersionController
from serving.controllers.models.training_jobs import TrainingJobs
from serving.data_dir import DataDir
from serving.kube import Watches, optional_informer
from serving.kube.connection.client import WatchEvent
from serving.objects import Object
from serving.planning.models.handoff import HANDED_OFF_ANNOTATION
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions
from serving.settings import DEFAULTS, ModelsSettings
from tests.fakes.kube import FakeKube
from tests.objects import training_jobs as jobs
from tests.objects.training_jobs import JOB_SET, NS, RAY_JOB, TRAIN_JOB, served
from tests.rig.control_plane.convergence import QUICK, running, until

RAY = served(RAY_JOB)
CRON_JOB = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", "uid": "c1"}}
GONE_SET = {
    "apiVersion": served(JOB_SET).api_version,
    "kind": "JobSet",
    "metadata": {"name": "gone", "uid": "g1"},
}
"""A JobSet that the API does not have."""


@pytest.fixture(autouse=True)
def _ask_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional_informer, "ASK_SECONDS", 0.01)
    monkeypatch.setattr(optional_informer, "RETRY_SECONDS", 0.01)


class Cluster:
    """An API, a data directory, and the controllers of models."""

    def __init__(self, root: Path) -> None:
        self.api = FakeKube()
        self.data = DataDir(root / "data")

    @asynccontextmanager
    async def controlled(self) -> AsyncIterator[None]:
        """Run the controllers, and at the end wait for their threads, which have files open."""
        async with running(self._control()):
            yield
        await asyncio.get_running_loop().shutdown_default_executor()

    async def _control(self) -> None:
        watches = Watches(self.api.client("watches"))
        table = TrainingJobs(watches, job_kinds.known(self.data.job_kinds))
        settings = dataclasses.replace(DEFAULTS, controllers=QUICK, models=ModelsSettings(capture="local"))
        api, data = self.api, self.data
        async with asyncio.TaskGroup() as group:
            for runner in (
                ModelController(api.client("model"), QUICK, watches),
                ModelVersionController(api.client("modelversion"), settings, data, watches, table),
                HandoffController(api.client("hand-off"), QUICK, watches, table),
                watches,
            ):
                group.create_task(runner.run())

    def meta(self, kind: kinds.Kind, name: str) -> Object:
        found = self.api.objects.get((kind.plural, NS, name), {})
        return found.get("metadata", {})

    def is_held(self, kind: kinds.Kind, name: str) -> bool:
        return names.HANDOFF_FINALIZER in (self.meta(kind, name).get("finalizers") or [])

    def versions(self) -> dict[str, Object]:
        return {version["metadata"]["name"]: version for version in self.api.find(kinds.MODEL_VERSION)}

    async def until_reason(self, version: str, reason: str) -> Object:
        """Wait for the reason of a version's `Ready`; returns the condition."""

        def ready() -> Object:
            status = self.versions()[version].get("status") or {}
            return dict(conditions.find(status.get("conditions"), "Ready") or {})

        await until(lambda: ready().get("reason") == reason, f"{version}: {reason}")
        return ready()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


async def test_job_of_a_kind_that_appears_after_the_start_becomes_a_version(cluster: Cluster) -> None:
    api = cluster.api
    async with cluster.controlled():
        api.serve(RAY)
        uid = api.add(RAY, jobs.job(RAY_JOB, "train"))["metadata"]["uid"]
        await until(lambda: cluster.is_held(RAY, "train"))
        assert cluster.versions() == {}
        jobs.finish_ray_job(api, cluster.data, "train")
        await until(lambda: HANDED_OFF_ANNOTATION in cluster.meta(RAY, "train")["annotations"])
        ((name, version),) = cluster.versions().items()
        assert not cluster.is_held(RAY, "train")
    named = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": uid}
    assert version["spec"]["source"]["job"] == named
    assert version["status"]["phase"] == "Ready"
    assert named.items() <= version["status"]["lineage"].items()
    assert [file["path"] for file in version["status"]["files"]] == ["model.joblib"]
    assert cluster.meta(RAY, "train")["annotations"][HANDED_OFF_ANNOTATION] == name


async def test_version_waits_when_the_kind_of_its_job_disappears_and_is_built_when_it_is_back(
    cluster: Cluster,
) -> None:
    api = cluster.api
    api.serve(RAY)
    api.add(RAY, jobs.job(RAY_JOB, "train", annotated=False))
    source = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train"}
    source["uid"] = cluster.meta(RAY, "train")["uid"]
    spec = {"modelName": "digits", "source": {"job": source}}
    api.add(kinds.MODEL_VERSION, {"metadata": {"name": "v1", "namespace": NS}, "spec": spec})
    async with cluster.controlled():
        await cluster.until_reason("v1", "JobRunning")
        api.serve()
        condition = await cluster.until_reason("v1", "JobKindUnavailable")
        assert condition["message"] == "RayJob train: the API serves no rayjobs.ray.io"
        api.serve(RAY)
        await cluster.until_reason("v1", "JobRunning")
        jobs.finish_ray_job(api, cluster.data, "train")
        await cluster.until_reason("v1", "Built")


async def test_version_waits_when_the_api_answers_late_that_it_has_no_such_kind(cluster: Cluster) -> None:
    answered = asyncio.Event()

    def groups() -> Object:
        if not answered.is_set():
            raise errors.Unavailable("not yet")
        return {"groups": []}

    cluster.api.documents["/apis"] = groups
    source = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": "u1"}
    spec = {"modelName": "digits", "source": {"job": source}}
    cluster.api.add(kinds.MODEL_VERSION, {"metadata": {"name": "v1", "namespace": NS}, "spec": spec})
    async with cluster.controlled():
        await until(lambda: bool(cluster.meta(kinds.MODEL_VERSION, "v1").get("ownerReferences")))
        answered.set()
        await cluster.until_reason("v1", "JobKindUnavailable")
    stored = [change.after or {} for change in cluster.api.log if change.kind is kinds.MODEL_VERSION]
    reasons = {c["reason"] for obj in stored for c in obj.get("status", {}).get("conditions", [])}
    assert reasons == {"JobKindUnavailable"}


async def test_version_fails_when_its_job_is_gone_after_its_kind_was_away(cluster: Cluster) -> None:
    api = cluster.api
    source = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": "gone"}
    spec = {"modelName": "digits", "source": {"job": source}}
    api.add(kinds.MODEL_VERSION, {"metadata": {"name": "v1", "namespace": NS}, "spec": spec})
    async with cluster.controlled():
        await cluster.until_reason("v1", "JobKindUnavailable")
        api.serve(RAY)
        condition = await cluster.until_reason("v1", "JobGone")
    assert condition["message"] == "RayJob train was deleted before its output was captured"


@pytest.mark.parametrize("replaces", [False, True])
async def test_version_waits_for_its_job_when_the_watch_of_the_jobs_is_behind(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *, replaces: bool
) -> None:
    api, shows_jobs, asked = cluster.api, asyncio.Event(), asyncio.Event()
    watch, exists = FakeKube.watch, TrainingJobs.exists

    async def late(self: FakeKube, kind: kinds.Kind, *arguments: Any, **options: Any) -> Any:
        async for event in watch(self, kind, *arguments, **options):
            if kind == RAY:
                await shows_jobs.wait()
            yield event

    async def noted(*arguments: Any) -> bool:
        asked.set()
        return await exists(*arguments)

    monkeypatch.setattr(FakeKube, "watch", late)
    monkeypatch.setattr(TrainingJobs, "exists", noted)
    source = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train"}
    spec = {"modelName": "digits", "source": {"job": {**source, "name": "none"}}}
    api.add(kinds.MODEL_VERSION, {"metadata": {"name": "v0", "namespace": NS}, "spec": spec})
    api.serve(RAY)
    job = jobs.job(RAY_JOB, "train", annotated=False)
    if replaces:
        api.add(RAY, job)
    async with cluster.controlled():
        await cluster.until_reason("v0", "JobNotFound")  # the jobs are listed
        if replaces:
            api.remove(RAY, NS, "train")
        source["uid"] = api.add(RAY, job)["metadata"]["uid"]
        spec = {"modelName": "digits", "source": {"job": source}}
        api.add(kinds.MODEL_VERSION, {"metadata": {"name": "v1", "namespace": NS}, "spec": spec})
        await until(lambda: asked.is_set() or "status" in cluster.versions()["v1"])
        shows_jobs.set()
        await cluster.until_reason("v1", "JobRunning")
    stored = [change.after or {} for change in api.log if change.kind is kinds.MODEL_VERSION]
    assert {obj.get("status", {}).get("phase") for obj in stored} <= {None, "Pending"}


async def test_version_names_the_known_kinds_when_the_kind_of_its_job_is_unknown(cluster: Cluster) -> None:
    source = {"apiVersion": "example.com/v1", "kind": "Training", "name": "train"}
    spec = {"modelName": "digits", "source": {"job": source}}
    cluster.api.add(kinds.MODEL_VERSION, {"metadata": {"name": "v1", "namespace": NS}, "spec": spec})
    async with cluster.controlled():
        condition = await cluster.until_reason("v1", "UnknownJobKind")
    assert condition["message"].startswith(
        "spec.source.job: kind and group must be one of ElasticDLJob.training"
    )
    assert condition["message"].endswith("got Training.example.com")


async def test_jobs_of_other_kinds_are_handed_off_when_one_kind_must_not_be_read(cluster: Cluster) -> None:
    api = cluster.api
    api.serve(RAY, served(JOB_SET))
    api.unreadable.add("jobsets")
    api.add(served(JOB_SET), jobs.job(JOB_SET, "set"))
    api.add(RAY, jobs.job(RAY_JOB, "train"))
    async with cluster.controlled():
        await until(lambda: cluster.is_held(RAY, "train"))
        assert not cluster.is_held(served(JOB_SET), "set")
        api.unreadable.clear()
        await until(lambda: cluster.is_held(served(JOB_SET), "set"))


async def test_only_the_top_job_is_held_when_its_parts_have_the_annotation_too(cluster: Cluster) -> None:
    api = cluster.api
    api.serve(served(TRAIN_JOB), served(JOB_SET))
    train = api.add(served(TRAIN_JOB), jobs.job(TRAIN_JOB, "top"))
    middle = api.add(served(JOB_SET), jobs.job(JOB_SET, "middle", annotated=False, owner=train))
    alone = api.add(served(JOB_SET), jobs.job(JOB_SET, "alone", annotated=False))
    for name, owner in (("part", middle), ("own", alone)):
        api.add(kinds.JOB, batch_job(name, owner))
    async with cluster.controlled():
        await until(lambda: cluster.is_held(served(TRAIN_JOB), "top") and cluster.is_held(kinds.JOB, "own"))
        await until(lambda: not cluster.is_held(kinds.JOB, "part"))
        assert not cluster.is_held(served(JOB_SET), "middle")
        api.change(
            served(TRAIN_JOB), NS, "top", {"metadata": {"annotations": {names.MODEL_ANNOTATION: None}}}
        )
        await until(lambda: cluster.is_held(kinds.JOB, "part"))
        assert not cluster.is_held(served(TRAIN_JOB), "top")


async def test_part_is_released_when_the_kind_of_its_owner_appears_later(cluster: Cluster) -> None:
    api = cluster.api
    owner = jobs.job(JOB_SET, "set")
    owner["metadata"]["uid"] = "set-uid"
    async with cluster.controlled():
        api.add(kinds.JOB, batch_job("part", owner))
        await until(lambda: cluster.is_held(kinds.JOB, "part"))
        api.serve(served(JOB_SET))
        owner["metadata"]["creationTimestamp"] = api.now
        api.objects["jobsets", NS, "set"] = {
            **owner,
            "metadata": {**owner["metadata"], "resourceVersion": "1"},
        }
        await until(lambda: not cluster.is_held(kinds.JOB, "part"))


async def test_part_waits_when_the_kind_of_its_owner_is_not_listed_yet(cluster: Cluster) -> None:
    api, answered = cluster.api, asyncio.Event()
    api.serve(served(JOB_SET))
    served_groups = api.documents["/apis"]

    def groups() -> Object:
        if not answered.is_set():
            raise errors.Unavailable("not yet")
        assert isinstance(served_groups, dict)
        return served_groups

    api.documents["/apis"] = groups
    api.add(kinds.JOB, finished_part(api.add(served(JOB_SET), jobs.job(JOB_SET, "set"))))
    api.add(kinds.JOB, batch_job("lost", GONE_SET))
    api.add(kinds.JOB, batch_job("own", CRON_JOB))
    async with cluster.controlled():
        await until(lambda: cluster.is_held(kinds.JOB, "own"))
        assert not cluster.is_held(kinds.JOB, "lost")
        answered.set()
        await until(lambda: cluster.is_held(served(JOB_SET), "set"))
        await until(lambda: cluster.is_held(kinds.JOB, "lost"), "the owner does not exist")
    assert not was_held(api, "part")
    assert cluster.versions() == {}


async def test_deleted_part_is_released_when_the_kind_of_its_owner_is_not_listed_yet(
    cluster: Cluster,
) -> None:
    api = cluster.api
    api.serve(served(JOB_SET))

    def groups() -> Object:
        raise errors.Unavailable("not yet")

    api.documents["/apis"] = groups
    job = batch_job("part", GONE_SET)
    job["metadata"] |= {
        "finalizers": [names.HANDOFF_FINALIZER],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 0,
    }
    api.add(kinds.JOB, job)
    async with cluster.controlled():
        await until(lambda: not api.find(kinds.JOB), "the Job is released")
    assert cluster.versions() == {}


@pytest.mark.parametrize("loss", ["removed", "forbidden"])
async def test_part_makes_no_version_when_its_owner_made_one_and_cannot_be_read(
    cluster: Cluster, loss: str
) -> None:
    api = cluster.api
    api.serve(served(JOB_SET))
    owner = api.add(served(JOB_SET), jobs.job(JOB_SET, "set"))
    api.change(served(JOB_SET), NS, "set", {"metadata": {"annotations": {HANDED_OFF_ANNOTATION: "v1"}}})
    source = {"apiVersion": owner["apiVersion"], "kind": "JobSet", "name": "set"}
    source["uid"] = owner["metadata"]["uid"]
    spec = {"modelName": "digits", "source": {"job": source}}
    api.add(kinds.MODEL_VERSION, {"metadata": {"name": "v1", "namespace": NS}, "spec": spec})
    api.add(kinds.JOB, finished_part(owner))
    if loss == "forbidden":
        api.unreadable.add("jobsets")
    else:
        api.serve()
    api.add(kinds.JOB, batch_job("own", GONE_SET))
    async with cluster.controlled():
        await until(lambda: cluster.is_held(kinds.JOB, "own"), "a job is not held for good")
    assert not was_held(api, "part")
    assert list(cluster.versions()) == ["v1"]


async def test_part_waits_when_the_watch_of_its_owner_has_just_ended(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, watch, is_refused = cluster.api, cluster.api.watch, asyncio.Event()

    async def refused(kind: kinds.Kind, *args: Any, **options: Any) -> AsyncIterator[WatchEvent]:
        if kind.plural == "jobsets":
            await is_refused.wait()
            raise errors.NotFound(404, "NotFound", "the server could not find the requested resource")
        async for event in watch(kind, *args, **options):
            yield event

    monkeypatch.setattr(api, "watch", refused)
    api.serve(served(JOB_SET))
    api.add(kinds.JOB, finished_part(api.add(served(JOB_SET), jobs.job(JOB_SET, "set"))))
    async with cluster.controlled():
        await until(lambda: cluster.is_held(served(JOB_SET), "set"))
        monkeypatch.setattr(optional_informer, "ASK_SECONDS", 60)
        is_refused.set()
        api.add(kinds.JOB, batch_job("own", CRON_JOB))
        await until(lambda: cluster.is_held(kinds.JOB, "own"))
    assert not was_held(api, "part")
    assert cluster.versions() == {}


async def test_job_tells_its_user_when_the_rules_of_its_kind_refuse_the_finalizer(cluster: Cluster) -> None:
    cluster.api.serve(RAY)
    cluster.api.add(RAY, jobs.job(RAY_JOB, "train"))
    cluster.api.fail_next(errors.Invalid(422, "Invalid", "spec.entrypoint: must not be empty"))
    async with cluster.controlled():
        await until(lambda: cluster.is_held(RAY, "train"))
        (event,) = cluster.api.find(kinds.EVENT_V1)
    assert (event["reason"], event["message"]) == ("HandOffRefused", "spec.entrypoint: must not be empty")
    assert event["involvedObject"]["kind"] == "RayJob"


async def test_job_of_a_cron_job_is_held_as_it_has_the_annotations_of_its_template(cluster: Cluster) -> None:
    cluster.api.add(kinds.JOB, batch_job("nightly-1", CRON_JOB))
    async with cluster.controlled():
        await until(lambda: cluster.is_held(kinds.JOB, "nightly-1"))


async def test_job_of_a_kind_that_a_user_has_added_becomes_a_version(cluster: Cluster) -> None:
    cluster.data.job_kinds.mkdir(parents=True)
    (cluster.data.job_kinds / "own.yaml").write_text(
        "name: own\n"
        "group: example.com\n"
        "versions: [v1]\n"
        "kinds: {Training: trainings}\n"
        "succeeded: [{fields: {status.end: [good]}}]\n"
        "failed: [{fields: {status.end: [bad]}}]\n"
        "pods: {label: example.com/training}\n"
    )
    row = job_kinds.known(cluster.data.job_kinds).find("example.com", "Training")
    assert row is not None
    cluster.api.serve(served(row))
    for name, end in (("one", "good"), ("two", "bad")):
        cluster.api.add(served(row), jobs.job(row, name) | {"status": {"end": end}})
    async with cluster.controlled():
        await until(lambda: bool(cluster.versions()))
        (version,) = cluster.versions().values()
        await cluster.until_reason(version["metadata"]["name"], "OutputGone")
    assert version["spec"]["source"]["job"]["name"] == "one"


def finished_part(owner: Object) -> Object:
    """Return the Job `part` of `owner`, which has succeeded."""
    status = {"conditions": [{"type": "Complete", "status": "True"}]}
    return batch_job("part", owner) | {"status": status}


def was_held(api: FakeKube, job: str) -> bool:
    """Whether a `batch/v1` Job has had the finalizer at any time."""
    metas = (change.after["metadata"] for change in api.log if change.kind is kinds.JOB and change.after)
    return any(meta["name"] == job and meta.get("finalizers") for meta in metas)


def batch_job(name: str, owner: Object) -> Object:
    """Return a Job with the annotation, which `owner` controls."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    meta = {
        "name": name,
        "namespace": NS,
        "annotations": {names.MODEL_ANNOTATION: "digits"},
        "ownerReferences": [reference],
    }
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": meta, "spec": {"template": {"spec": pod}}}
