"""The JSON documents of an image: their contents, and the inputs that must not change their digest."""

import json
from typing import Any

import pytest

from serving import errors
from serving.images.documents import image, oci
from serving.images.documents.output_manifest import OutputManifest

FILES = (
    oci.File("model.joblib", "sha256:" + "1" * 64, 10),
    oci.File("slipway.json", "sha256:" + "2" * 64, 20),
)
BUILT = (
    oci.BuiltLayer("sha256:" + "a" * 64, 2048, (FILES[1],), "sha256:" + "a" * 64),
    oci.BuiltLayer("sha256:" + "b" * 64, 4096, (FILES[0],), "sha256:" + "b" * 64),
)
OUTPUT = OutputManifest("sklearn", {"accuracy": 0.5}, "abc")


def test_config_lists_every_layer_in_order_as_diff_ids() -> None:
    documents = oci.documents(BUILT, OUTPUT)
    config = json.loads(documents.config)
    assert config["rootfs"] == {"type": "layers", "diff_ids": [layer.digest for layer in BUILT]}
    assert config["architecture"]
    built = json.loads(documents.image)
    assert [layer["digest"] for layer in built["layers"]] == config["rootfs"]["diff_ids"]
    assert built["config"]["digest"] == oci.digest_of(documents.config)
    assert "artifactType" not in built


def test_modelpack_names_the_same_blobs_and_refers_to_the_image() -> None:
    documents = oci.documents(BUILT, OUTPUT)
    built, pack = json.loads(documents.image), json.loads(documents.modelpack)
    assert [layer["digest"] for layer in pack["layers"]] == [layer["digest"] for layer in built["layers"]]
    assert pack["subject"]["digest"] == oci.digest_of(documents.image)
    assert pack["artifactType"] == oci.MODELPACK_TYPE
    assert pack["config"] == oci.descriptor(oci.MODELPACK_CONFIG_TYPE, documents.modelpack_config)


def test_annotations_carry_framework_metrics_and_size() -> None:
    annotations = json.loads(oci.documents(BUILT, OUTPUT).image)["annotations"]
    assert annotations["dev.slipway.framework"] == "sklearn"
    assert json.loads(annotations["dev.slipway.metrics"]) == {"accuracy": 0.5}
    assert annotations["dev.slipway.size"] == "30"
    assert annotations["org.opencontainers.image.title"] == "models"


def test_lineage_differs_by_job_without_changing_the_image() -> None:
    built = oci.documents(BUILT, OUTPUT).image
    first, _ = oci.lineage(built, "slipway.local/a/m", {"uid": "1"})
    second, blob = oci.lineage(built, "slipway.local/a/m", {"uid": "2"})
    assert first != second
    assert json.loads(second)["subject"]["digest"] == oci.digest_of(built)
    assert json.loads(blob) == {"repository": "slipway.local/a/m", "uid": "2"}


def test_files_are_read_back_from_the_image_manifest() -> None:
    parsed = image.parse(oci.documents(BUILT, OUTPUT).image)
    assert sorted((f for layer in parsed.layers for f in layer.files or ()), key=lambda f: f.path) == list(
        FILES
    )


def test_a_manifest_that_names_a_path_outside_is_refused() -> None:
    outside = oci.File("../../etc/passwd", "sha256:" + "1" * 64, 1)
    evil = oci.BuiltLayer("sha256:" + "a" * 64, 1, (outside,), "sha256:" + "a" * 64)
    with pytest.raises(errors.Permanent, match=r"`\.\.`"):
        image.parse(oci.documents([evil], OUTPUT).image)


@pytest.mark.parametrize(
    ("fields", "artifact_type"),
    [({"artifactType": "test/a"}, "test/a"), ({}, oci.CONFIG_TYPE), ({"config": None}, None)],
)
def test_referrer_has_the_artifact_type_of_the_document_or_its_config(
    fields: dict[str, Any], artifact_type: str | None
) -> None:
    document = {"mediaType": oci.MANIFEST_TYPE, "config": {"mediaType": oci.CONFIG_TYPE}} | fields
    listed = oci.referrer(document, oci.encode(document))
    assert listed.get("artifactType") == artifact_type
    assert (listed["digest"], listed["mediaType"]) == (
        oci.digest_of(oci.encode(document)),
        oci.MANIFEST_TYPE,
    )
