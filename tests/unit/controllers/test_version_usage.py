"""The users of a version, and the release of an unused image, from caches that the test fills."""

from pathlib import Path

import pytest

from serving.controllers.models.image_builder import ImageBuilder, pin_owner
from serving.controllers.models.image_retention import ImageRetention
from serving.controllers.models.version_usage import VersionUsage
from serving.data_dir import DataDir
from serving.images.capture.build import capture
from serving.images.store.model_store import ModelStore
from serving.kube import Informer, Key, Watches
from serving.objects import Object
from serving.resources import kinds, names
from serving.settings import DEFAULTS
from tests.fakes.kube import FakeKube

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


@pytest.mark.parametrize(
    ("deleting", "used", "kept"), [(False, False, True), (True, False, False), (True, True, True)]
)
async def test_image_is_released_unless_another_version_keeps_its_digest(
    tmp_path: Path, *, deleting: bool, used: bool, kept: bool
) -> None:
    """An unused version that is being deleted does not keep the image."""
    kube, data = FakeKube(), DataDir(tmp_path / "data")
    store, watches, files = ModelStore(data.models), Watches(kube), tmp_path / "files"
    files.mkdir()
    (files / "model.joblib").write_text("weights")
    digest = capture(files, store, repository="slipway.local/default/digits", lineage={}).digest
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
