"""The users of a version, and the pin and release of its image, from caches that the test fills."""

import dataclasses
from pathlib import Path

import pytest

from serving.controllers.models.image_builder import ImageBuilder, pin_owner
from serving.controllers.models.image_retention import ImageRetention
from serving.controllers.models.version_usage import VersionUsage
from serving.data_dir import DataDir
from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from serving.kube import Informer, Key, Watches
from serving.objects import Object
from serving.resources import kinds, names
from serving.settings import DEFAULTS
from tests.fakes.kube import FakeKube

CLUSTER, ONE_MACHINE = "containerd://2.1.4", "slipway://0.1.0"
V1, V2 = Key("default", "v1"), Key("default", "v2")


def inference(name: str, *versions: str) -> Object:
    predictors = [{"name": version, "modelVersion": version} for version in versions]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"predictors": predictors}}


def show(informer: Informer, obj: Object | None, key: Key | None = None) -> None:
    """Store an object as the watch does."""
    informer._store(key or Key.of(obj or {}), obj)


def test_usage_changes_with_the_first_user_and_without_the_last() -> None:
    watches, changes = Watches(FakeKube()), []
    usage = VersionUsage(watches, changes.append)
    inferences, deployments = watches.of(kinds.INFERENCE), watches.of(kinds.DEPLOYMENT)
    show(inferences, inference("a", "v1", "v2"))
    assert (sorted(changes), usage.users(V1)) == ([V1, V2], ["Inference a"])
    changes.clear()
    show(inferences, inference("b", "v1"))
    template = {"metadata": {"annotations": {names.MODEL_VERSION_ANNOTATION: "v1"}}}
    deployment = {"metadata": {"name": "d", "namespace": "default"}, "spec": {"template": template}}
    show(deployments, deployment)
    assert (changes, usage.users(V1)) == ([], ["Inference a", "Inference b", "Deployment d"])
    show(inferences, inference("a", "v2"))
    show(inferences, None, Key("default", "b"))
    assert (changes, usage.is_used(V1)) == ([], True)
    show(deployments, None, Key("default", "d"))
    assert (changes, usage.is_used(V1), usage.is_used(V2)) == ([V1], False, True)


def test_version_is_in_use_between_two_trials_of_an_experiment() -> None:
    watches, changes = Watches(FakeKube()), []
    usage = VersionUsage(watches, changes.append)
    meta = {"namespace": "default", "generation": 1}
    experiment = {"metadata": {**meta, "name": "e"}, "spec": {"target": {"modelVersion": "v1"}}}
    trial = {"metadata": {**meta, "name": "e-1"}, "spec": {"modelVersion": "v1"}}
    experiments, trials = watches.of(kinds.PROFILING_EXPERIMENT), watches.of(kinds.TRIAL)
    show(experiments, experiment)
    show(trials, trial)
    assert usage.users(V1) == ["ProfilingExperiment e", "Trial e-1"]
    assert (changes, usage.is_mounted(V1)) == ([V1, V1], True), "the image is needed from the first trial on"
    show(trials, {**trial, "status": {"phase": "Succeeded"}})
    assert usage.users(V1) == ["ProfilingExperiment e"]
    assert (changes, usage.is_mounted(V1)) == ([V1, V1, V1], False)
    changes.clear()
    show(experiments, {**experiment, "status": {"phase": "Succeeded", "observedGeneration": 1}})
    assert (changes, usage.is_used(V1)) == ([V1], False)


def version(name: str, digest: str, *, deleting: bool) -> Object:
    meta: Object = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "finalizers": [names.MODEL_IMAGE_FINALIZER],
    }
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": meta,
        "spec": {"modelName": "digits", "source": {"path": "/a"}},
        "status": {"phase": "Ready", "digest": digest},
    }


def captured(files: Path, store: ModelStore) -> str:
    """Put an image into the store; return its digest."""
    files.mkdir()
    (files / "model.joblib").write_text("weights")
    return build_image(files, store, repository="slipway.local/default/digits", lineage={}).digest


class Kept:
    """A pushed image of version v1, pinned since its build, in a store that is too small for it."""

    def __init__(self, root: Path, runtime: str = "", *, used: bool) -> None:
        kube, data = FakeKube(), DataDir(root / "data")
        kube.unchecked.add(kinds.NODE)
        if runtime:
            info = {"nodeInfo": {"containerRuntimeVersion": runtime}}
            kube.add(kinds.NODE, {"metadata": {"name": "node"}, "status": info})
        settings = dataclasses.replace(DEFAULTS, store=dataclasses.replace(DEFAULTS.store, max_bytes=1))
        self.kube, self.store, watches = kube, ModelStore(data.models), Watches(kube)
        digest = captured(root / "files", self.store)
        self.store.set_origin(digest, "registry.example/models/digits")
        self.version = version("v1", digest, deleting=False)
        self.store.pin(digest, pin_owner(self.version))
        usage = VersionUsage(watches, lambda key: None)
        self.watches, self.versions = watches, watches.of(kinds.MODEL_VERSION)
        builder = ImageBuilder(kube, self.store, data, settings)
        self.images = ImageRetention(kube, builder, usage, self.versions, settings)
        show(self.versions, self.version)
        if used:
            show(watches.of(kinds.INFERENCE), inference("a", "v1"))


@pytest.mark.parametrize(
    ("runtime", "used", "kept"),
    [(CLUSTER, True, False), (ONE_MACHINE, True, True), ("", True, True), (ONE_MACHINE, False, False)],
    ids=["cluster", "one machine", "before its node", "unused"],
)
async def test_the_pin_of_a_build_stays_only_when_pods_mount_the_image_of_this_store(
    tmp_path: Path, runtime: str, *, used: bool, kept: bool
) -> None:
    kept_image = Kept(tmp_path, runtime, used=used)
    assert await kept_image.images.update_pin(kept_image.version)
    assert (kept_image.store.images() != [], kept_image.store.owners() != set()) == (kept, kept)
    assert await kept_image.images.update_pin(kept_image.version), "it is not fetched again"


@pytest.mark.parametrize(("kind", "kept"), [(kinds.PROFILING_EXPERIMENT, False), (kinds.TRIAL, True)])
async def test_image_of_a_tuned_version_is_pinned_only_when_a_trial_measures_it(
    tmp_path: Path, kind: kinds.Kind, *, kept: bool
) -> None:
    kept_image = Kept(tmp_path, ONE_MACHINE, used=False)
    meta = {"namespace": "default", "name": "e", "generation": 1}
    spec = {"modelVersion": "v1", "target": {"modelVersion": "v1"}}
    show(kept_image.watches.of(kind), {"metadata": meta, "spec": spec})
    assert await kept_image.images.update_pin(kept_image.version)
    assert (kept_image.store.images() != []) == kept


async def test_an_image_in_use_is_not_fetched_when_the_nodes_may_not_be_listed(tmp_path: Path) -> None:
    kept_image = Kept(tmp_path, used=True)
    kept_image.kube.unreadable.add(kinds.NODE.plural)
    assert await kept_image.images.update_pin(kept_image.version)
    assert kept_image.store.images() == []


@pytest.mark.parametrize(("runtime", "kept"), [(CLUSTER, False), (ONE_MACHINE, True)])
async def test_the_image_of_a_blocked_version_in_use_is_evicted_only_on_a_cluster(
    tmp_path: Path, runtime: str, *, kept: bool
) -> None:
    kept_image = Kept(tmp_path, runtime, used=True)
    await kept_image.images.unpin_blocked(kept_image.version)
    assert (kept_image.store.images() != []) == kept


async def test_an_image_keeps_its_pin_when_the_watch_lacks_its_digest(tmp_path: Path) -> None:
    kept_image = Kept(tmp_path, CLUSTER, used=True)
    show(kept_image.versions, {**kept_image.version, "status": {"phase": "Building"}})
    assert await kept_image.images.update_pin(kept_image.version)
    assert kept_image.store.owners() == {pin_owner(kept_image.version)}


@pytest.mark.parametrize(
    ("deleting", "used", "kept"), [(False, False, True), (True, False, False), (True, True, True)]
)
async def test_image_is_released_unless_another_version_keeps_its_digest(
    tmp_path: Path, *, deleting: bool, used: bool, kept: bool
) -> None:
    """An unused version that is being deleted does not keep the image."""
    kube, data = FakeKube(), DataDir(tmp_path / "data")
    store, watches, files = ModelStore(data.models), Watches(kube), tmp_path / "files"
    digest = captured(files, store)
    usage = VersionUsage(watches, lambda key: None)
    versions = watches.of(kinds.MODEL_VERSION)
    images = ImageRetention(kube, ImageBuilder(kube, store, data, DEFAULTS), usage, versions, DEFAULTS)
    deleted, sharing = version("v1", digest, deleting=True), version("v2", digest, deleting=deleting)
    for stored in (deleted, sharing):
        show(versions, stored)
    if used:
        show(watches.of(kinds.INFERENCE), inference("a", "v2"))
    kube.add(kinds.MODEL_VERSION, deleted)
    deleted["metadata"]["resourceVersion"] = kube.find(kinds.MODEL_VERSION)[0]["metadata"]["resourceVersion"]
    store.pin(digest, pin_owner(deleted))
    assert await images.release(deleted) is None
    assert store.has(digest) == kept
    assert store.pins(digest) == set()
