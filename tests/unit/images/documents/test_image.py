"""Manifests and configs of other builders are read, or refused with their field."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.images.documents import image, layers, oci
from serving.images.documents.output_manifest import OutputManifest

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
FILE = oci.File("w", A, 3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def own_manifest(compression: str = "") -> bytes:
    return oci.documents(
        [oci.BuiltLayer(A, 10, (FILE,), A if not compression else B, compression)], OutputManifest()
    ).image


def changed(path: list[Any], value: Any) -> bytes:
    document = json.loads(own_manifest())
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    return oci.encode(document)


def test_own_layers_are_reproducible_unless_they_are_compressed() -> None:
    uncompressed, compressed = image.parse(own_manifest()), image.parse(own_manifest("zstd"))
    assert uncompressed.layers[0].is_reproducible
    assert uncompressed.layers[0].plan() == layers.LayerPlan((layers.LayerEntry("w", 3),))
    assert uncompressed.kept == {uncompressed.config.digest}
    assert not compressed.layers[0].is_reproducible
    assert compressed.kept == {compressed.config.digest, A}


def test_the_layer_of_another_builder_is_kept() -> None:
    parsed = image.parse(changed(["layers", 0, "annotations"], None))
    assert parsed.layers[0].files is None
    assert A in parsed.kept


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["config", "mediaType"], oci.MODELPACK_CONFIG_TYPE, "config.mediaType"),
        (["config", "digest"], "sha256:../../x", "config.digest"),
        (["config", "size"], -1, "config.size"),
        (["config"], None, "config.mediaType"),
        (["layers"], [], "layers: must"),
        (["layers"], "x", "layers: must"),
        (["layers", 0, "digest"], A.upper(), "layers[0].digest"),
        (["layers", 0, "size"], True, "layers[0].size"),
        (["layers", 0, "size"], "10", "layers[0].size"),
        (["layers", 0, "mediaType"], "application/vnd.oci.image.layer.v1.tar+xz", "layers[0].mediaType"),
        (["layers", 0, "annotations", oci.FILES], "[1]", "layers[0].annotations"),
        (["layers", 0, "annotations", oci.FILES], 7, "layers[0].annotations"),
        (["layers", 0, "annotations", oci.FILES], '[{"path":"../x","digest":"' + A + '","size":1}]', "`..`"),
    ],
)
def test_unsupported_manifest_is_refused_with_its_field(path: list[Any], value: Any, message: str) -> None:
    with pytest.raises(errors.Permanent) as caught:
        image.parse(changed(path, value))
    assert caught.value.reason == "InvalidImage"
    assert message in str(caught.value)


def test_an_index_is_no_image() -> None:
    with pytest.raises(errors.Permanent, match="no index"):
        image.parse(oci.encode({"mediaType": oci.INDEX_TYPE, "manifests": []}))


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_refused_with_invalid_image(data: bytes) -> None:
    for read in (image.parse, lambda config: image.diff_ids(config, 1)):
        with pytest.raises(errors.Permanent) as caught:
            read(data)
        assert caught.value.reason == "InvalidImage"
    assert image.subject(data) is None


@given(
    JSON,
    st.sampled_from([["config"], ["layers"], ["layers", 0], ["layers", 0, "annotations"], ["annotations"]]),
)
def test_any_value_in_a_field_is_read_or_refused(value: Any, path: list[Any]) -> None:
    try:
        image.parse(changed(path, value))
    except errors.Permanent as error:
        assert error.reason == "InvalidImage"  # noqa: PT017 both outcomes are right


def test_config_lists_one_diff_id_per_layer() -> None:
    config = oci.encode({"rootfs": {"diff_ids": [A, B]}})
    assert image.diff_ids(config, 2) == (A, B)
    with pytest.raises(errors.Permanent, match="must list 3"):
        image.diff_ids(config, 3)


def test_subject_and_referred_blobs_are_read_from_a_document() -> None:
    manifest, _ = oci.lineage(own_manifest(), "r", {})
    assert image.subject(manifest) == oci.digest_of(own_manifest())
    assert oci.digest_of(oci.EMPTY) in image.referred(manifest)
    assert image.subject(own_manifest()) is None


@pytest.mark.parametrize(
    "digest", ["", "a" * 64, "sha256:" + "a" * 63, "sha512:" + "a" * 64, A + "\n", A.upper()]
)
def test_malformed_digest_is_refused_as_a_file_name(digest: str) -> None:
    with pytest.raises(errors.Permanent) as caught:
        image.hexadecimal(digest)
    assert caught.value.reason == "InvalidDigest"
