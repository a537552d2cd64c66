"""Hand-off, ModelVersion and Model controllers converge to the same objects when writes fail or they die."""

import asyncio
import dataclasses
import itertools
from pathlib import Path

import pytest

from serving import job_kinds
from serving.controllers.models.handoff import HandoffController
from serving.controllers.models.model import ModelController
from serving.controllers.models.modelversion import ModelVersionController
from serving.controllers.models.training_jobs import TrainingJobs
from serving.data_dir import DataDir
from serving.images.store.model_store import ModelStore
from serving.kube import Watches, optional_informer
from serving.objects import Object
from serving.planning.models.handoff import HANDED_OFF_ANNOTATION
from serving.resources import kinds, names
from serving.settings import DEFAULTS, ModelsSettings
from tests.fakes.kube import FakeKube
from tests.objects import training_jobs
from tests.objects.training_jobs import RAY_JOB
from tests.rig.control_plane.convergence import QUICK, Case, until
from tests.rig.control_plane.model_objects import final_state, find, is_held

NS = "default"
SETTINGS = dataclasses.replace(DEFAULTS, controllers=QUICK, models=ModelsSettings(capture="local"))


def job(name: str, **annotations: str) -> Object:
    container = {
        "name": "train",
        "image": "i",
        "env": [{"name": names.OUTPUT_DIR_ENV, "value": "/out/model"}],
        "volumeMounts": [{"name": "out", "mountPath": "/out"}],
    }
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [{"name": "out", "emptyDir": {}}],
        }
    }
    meta = {"name": name, "namespace": NS, "annotations": {names.MODEL_ANNOTATION: "digits", **annotations}}
    return {"metadata": meta, "spec": {"template": template}}


def finish(api: FakeKube, data: DataDir, name: str, condition: str = "Complete") -> None:
    """Do the work of a node: run the Pod of the Job, which writes its output, and report its end."""
    owner = next(o for o in api.find(kinds.JOB) if o["metadata"]["name"] == name)
    meta = {
        "name": f"{name}-pod",
        "namespace": NS,
        "labels": {"batch.kubernetes.io/job-name": name},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": name,
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ],
    }
    pod = api.add(kinds.POD, {"metadata": meta, "spec": owner["spec"]["template"]["spec"]})
    output = data.pod_volume(pod["metadata"]["uid"], "out") / "model"
    output.mkdir(parents=True)
    (output / "model.joblib").write_text(f"weights of {name}")
    phase = "Succeeded" if condition == "Complete" else "Failed"
    api.change(kinds.POD, NS, f"{name}-pod", {"status": {"phase": phase}})
    api.change(kinds.JOB, NS, name, {"status": {"conditions": [{"type": condition, "status": "True"}]}})


def is_handed_off(api: FakeKube, name: str) -> bool:
    return HANDED_OFF_ANNOTATION in find(api, kinds.JOB, name)["metadata"]["annotations"]


def model_reports(api: FakeKube, versions: int, latest: str) -> bool:
    status = find(api, kinds.MODEL, "digits").get("status") or {}
    return status.get("versions") == versions and (status.get("latestVersion") or {}).get("name") == latest


def phase(api: FakeKube, version: str) -> str:
    return str((find(api, kinds.MODEL_VERSION, version).get("status") or {}).get("phase"))


@pytest.fixture
def ask_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional_informer, "ASK_SECONDS", 0.01)


class ModelCase:
    """A data directory for each run, so that runs do not share images."""

    def __init__(self, root: Path) -> None:
        self._numbers = itertools.count()
        self._root = root
        self.data = DataDir(root)

    def arrange(self) -> FakeKube:
        self.data = DataDir(self._root / str(next(self._numbers)))
        return FakeKube()

    async def control(self, api: FakeKube) -> None:
        watches = Watches(api.client("watches"))
        model = ModelController(api.client("model"), QUICK, watches)
        jobs = TrainingJobs(watches, job_kinds.shipped())
        version = ModelVersionController(api.client("modelversion"), SETTINGS, self.data, watches, jobs)
        handoff = HandoffController(api.client("hand-off"), QUICK, watches, jobs)
        async with asyncio.TaskGroup() as group:
            for controller in (model, version, handoff):
                group.create_task(controller.run())
            group.create_task(watches.run())

    async def around(self, api: FakeKube) -> None:
        await asyncio.Event().wait()

    async def story(self, api: FakeKube) -> Object:
        """Hand off a later deleted Job, one with a named version, a failing one, and create a version."""
        api.add(kinds.JOB, job("first"))
        await until(lambda: is_held(api, "first"), "first is held")
        finish(api, self.data, "first")
        await until(lambda: is_handed_off(api, "first") and not is_held(api, "first"), "first is handed off")
        api.remove(kinds.JOB, NS, "first")
        for name in ("second", "bad"):
            api.add(kinds.JOB, job(name, **{names.MODEL_VERSION_ANNOTATION: f"v-{name}"}))
        await until(lambda: is_held(api, "second") and is_held(api, "bad"), "both are held")
        finish(api, self.data, "bad", "Failed")
        finish(api, self.data, "second")
        await until(lambda: is_handed_off(api, "second") and not is_held(api, "bad"), "second is handed off")
        missing_source = {"modelName": "digits", "source": {"path": str(self.data.root / "nowhere")}}
        api.add(
            kinds.MODEL_VERSION, {"metadata": {"name": "v-gone", "namespace": NS}, "spec": missing_source}
        )
        await until(lambda: model_reports(api, 3, "v-second"), "the Model reports the versions")
        await until(lambda: phase(api, "v-gone") == "Failed", "v-gone has failed")
        await until(lambda: not is_held(api, "second"), "second is released")
        end = final_state(api)
        end["ModelVersion v-gone"][1]["source"] = "a path of this run"
        return end

    async def ray_job(self, api: FakeKube) -> Object:
        """Hand off the output of a kind that appears after the start."""
        kind = training_jobs.served(RAY_JOB)
        api.serve(kind)
        api.add(kind, training_jobs.job(RAY_JOB, "train"))
        meta = api.objects[kind.plural, NS, "train"]["metadata"]

        def now() -> Object:
            found: Object = api.objects[kind.plural, NS, "train"]["metadata"]
            return found

        await until(lambda: names.HANDOFF_FINALIZER in (now().get("finalizers") or []), "the RayJob is held")
        training_jobs.finish_ray_job(api, self.data, "train")
        await until(lambda: HANDED_OFF_ANNOTATION in now()["annotations"], "the RayJob is handed off")
        await until(lambda: model_reports(api, 1, f"train-{meta['uid'].replace('-', '')[:5]}"), "the Model")
        end = now()
        return final_state(api) | {"RayJob train": [end["finalizers"], sorted(end["annotations"])]}

    async def end_of_life(self, api: FakeKube) -> Object:
        """Retention deletes a version; a deleted version in use waits until its user is deleted."""
        api.add(
            kinds.MODEL, {"metadata": {"name": "digits", "namespace": NS}, "spec": {"retention": {"keep": 1}}}
        )
        predictors = [{"name": "a", "modelVersion": "v1"}]
        inference = {
            "metadata": {"name": "inf", "namespace": NS},
            "spec": {"framework": "sklearn", "predictors": predictors},
        }
        api.add(kinds.INFERENCE, inference)
        for number in (1, 2, 3):
            path = self.data.root.with_name(f"{self.data.root.name}-files-{number}")
            path.mkdir(parents=True)
            (path / "model.joblib").write_text(f"weights {number}")
            spec = {"modelName": "digits", "source": {"path": str(path)}}
            api.add(kinds.MODEL_VERSION, {"metadata": {"name": f"v{number}", "namespace": NS}, "spec": spec})
            await until(lambda name=f"v{number}": phase(api, name) == "Ready", f"v{number} is ready")
        await until(lambda: not find(api, kinds.MODEL_VERSION, "v2"), "retention deletes v2")
        api.change(kinds.MODEL_VERSION, NS, "v1", {"metadata": {"deletionTimestamp": api.now}})
        await until(
            lambda: "used by Inference inf" in str(find(api, kinds.MODEL_VERSION, "v1")),
            "v1 reports its user",
        )
        store = ModelStore(self.data.models)
        images_before = set(store.images())
        api.remove(kinds.INFERENCE, NS, "inf")
        await until(lambda: not find(api, kinds.MODEL_VERSION, "v1"), "v1 is deleted")
        await until(lambda: model_reports(api, 1, "v3"), "the Model reports the versions")
        await until(lambda: not store.owners(), "nothing is pinned")
        end = final_state(api)
        for part, name in ((1, "source"), (2, "lineage")):
            end["ModelVersion v3"][part][name] = "a path of this run"
        digest = find(api, kinds.MODEL_VERSION, "v3")["status"]["digest"]
        return end | {
            "images": [len(images_before), [image == digest for image in store.images()]],
            "pins": sorted(store.owners()),
        }


def case(root: Path) -> Case:
    models = ModelCase(root)
    return Case(models.arrange, models.control, models.around, models.story)


def ray_case(root: Path) -> Case:
    models = ModelCase(root)
    return Case(models.arrange, models.control, models.around, models.ray_job)


def end_of_life_case(root: Path) -> Case:
    models = ModelCase(root)
    return Case(models.arrange, models.control, models.around, models.end_of_life)


async def test_models_and_versions_converge_when_undisturbed(tmp_path: Path) -> None:
    end, _ = await case(tmp_path).undisturbed()
    assert sorted(end) == [
        "Job bad",
        "Job second",
        "Model digits",
        "ModelVersion first-uid",
        "ModelVersion v-gone",
        "ModelVersion v-second",
    ]
    phases = {
        name: status["phase"] for name, (_, _, status, _) in end.items() if name.startswith("ModelVersion")
    }
    assert phases == {
        "ModelVersion first-uid": "Ready",
        "ModelVersion v-second": "Ready",
        "ModelVersion v-gone": "Failed",
    }


@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer-lost"])
async def test_objects_are_the_same_when_each_write_fails_in_turn(tmp_path: Path, *, done: bool) -> None:
    assert await case(tmp_path).survives_failures(done=done) > 15


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_objects_are_the_same_when_the_controller_is_killed_at_each_write_in_turn(
    tmp_path: Path, *, done: bool
) -> None:
    assert await case(tmp_path).survives_kills(done=done) > 15


async def test_job_of_another_kind_is_handed_off_when_undisturbed(ask_often: None, tmp_path: Path) -> None:
    end, _ = await ray_case(tmp_path).undisturbed()
    assert sorted(end) == ["Model digits", "ModelVersion train-uid", "RayJob train"]
    assert end["RayJob train"] == [[], [HANDED_OFF_ANNOTATION, names.MODEL_ANNOTATION]]


@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer-lost"])
async def test_job_of_another_kind_is_handed_off_once_when_each_write_fails_in_turn(
    ask_often: None, tmp_path: Path, *, done: bool
) -> None:
    assert await ray_case(tmp_path).survives_failures(done=done) > 8


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_job_of_another_kind_is_handed_off_once_when_the_controller_is_killed_at_each_write_in_turn(
    ask_often: None, tmp_path: Path, *, done: bool
) -> None:
    assert await ray_case(tmp_path).survives_kills(done=done) > 8


async def test_unused_versions_are_deleted_with_their_images_when_undisturbed(tmp_path: Path) -> None:
    end, _ = await end_of_life_case(tmp_path).undisturbed()
    assert sorted(end) == ["Model digits", "ModelVersion v3", "images", "pins"]
    assert (end["images"], end["pins"]) == ([2, [True]], [])


async def test_unused_versions_are_deleted_with_their_images_when_each_write_is_refused_in_turn(
    tmp_path: Path,
) -> None:
    assert await end_of_life_case(tmp_path).survives_failures(done=False) > 15


async def test_unused_versions_end_with_their_images_when_the_controller_is_killed_after_each_write_in_turn(
    tmp_path: Path,
) -> None:
    assert await end_of_life_case(tmp_path).survives_kills(done=True) > 15
