"""Signatures in a registry: stored where cosign looks for them, and required by pulls with trusted keys."""

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from serving import errors
from serving.images.building.model_image import Built, build_image
from serving.images.documents import oci, signing
from serving.images.documents.image import Blob
from serving.images.registry import (
    Pushed,
    Reference,
    Registry,
    blobs,
    manifests,
    pull,
    push,
    referrers,
    signatures,
)
from serving.images.registry.client import RegistryRequest
from serving.images.store.model_store import ModelStore


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def stranger() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
async def signed(
    registry: Registry, store: ModelStore, built: Built, target: Reference, key: ec.EllipticCurvePrivateKey
) -> Pushed:
    """The image in the registry, signed with the key."""
    return await push(registry, store, built.digest, target, signing_key=key)


@pytest.mark.usefixtures("signed")
async def test_signature_is_stored_where_cosign_looks_for_it(
    registry: Registry, target: Reference, built: Built, key: ec.EllipticCurvePrivateKey
) -> None:
    stored = await manifests.get(registry, target.tagged(f"{built.digest.replace(':', '-')}.sig"))
    (layer,) = stored.document["layers"]
    payload = await blobs.read(registry, target, Blob(layer["digest"], layer["size"]))
    config = stored.document["config"]
    listed = await referrers.find(registry, target, built.digest)
    diff_ids = json.loads(await blobs.read(registry, target, Blob(config["digest"], config["size"])))
    assert layer["mediaType"] == "application/vnd.dev.cosign.simplesigning.v1+json"
    signature = base64.b64decode(layer["annotations"]["dev.cosignproject.cosign/signature"])
    key.public_key().verify(signature, payload, signing._ALGORITHM)
    critical = json.loads(payload)["critical"]
    assert critical["image"]["docker-manifest-digest"] == built.digest
    assert critical["identity"]["docker-reference"] == target.name
    assert diff_ids["rootfs"]["diff_ids"] == [layer["digest"]]
    assert stored.digest in {
        entry["digest"] for entry in listed if entry["artifactType"] == signing.SIGNATURE_ARTIFACT
    }


@pytest.mark.usefixtures("signed")
async def test_image_signed_by_a_trusted_key_is_verified_offline_after_the_pull(
    registry: Registry,
    target: Reference,
    built: Built,
    key: ec.EllipticCurvePrivateKey,
    stranger: ec.EllipticCurvePrivateKey,
    tmp_path: Path,
) -> None:
    second_store = ModelStore(tmp_path / "other")
    trusted = [stranger.public_key(), key.public_key()]
    assert await pull(registry, second_store, target, trusted_keys=trusted) == built.digest
    nowhere = Reference.parse(f"127.0.0.1:1/gone@{built.digest}")
    assert await pull(registry, second_store, nowhere, trusted_keys=trusted) == built.digest


@pytest.mark.parametrize("by_a_stranger", [False, True])
async def test_image_without_a_trusted_signature_never_becomes_visible(
    registry: Registry,
    target: Reference,
    store: ModelStore,
    built: Built,
    key: ec.EllipticCurvePrivateKey,
    stranger: ec.EllipticCurvePrivateKey,
    tmp_path: Path,
    by_a_stranger: bool,  # noqa: FBT001 a parameter of the test
) -> None:
    second_store = ModelStore(tmp_path / "other")
    await push(registry, store, built.digest, target, signing_key=stranger if by_a_stranger else None)
    with pytest.raises(errors.Permanent) as raised:
        await pull(registry, second_store, target, trusted_keys=[key.public_key()])
    assert raised.value.reason == ("SignatureInvalid" if by_a_stranger else "SignatureMissing")
    assert second_store.images() == []
    assert not list((tmp_path / "other").rglob("part-0.bin"))


@pytest.mark.usefixtures("pushed")
async def test_stored_image_without_a_trusted_signature_is_refused_too(
    registry: Registry, target: Reference, store: ModelStore, built: Built, key: ec.EllipticCurvePrivateKey
) -> None:
    with pytest.raises(errors.Permanent) as raised:
        await pull(registry, store, target.at(built.digest), trusted_keys=[key.public_key()])
    assert raised.value.reason == "SignatureMissing"


@pytest.mark.usefixtures("signed")
async def test_signature_of_another_image_is_invalid(
    registry: Registry,
    target: Reference,
    store: ModelStore,
    built: Built,
    trained: Path,
    key: ec.EllipticCurvePrivateKey,
    tmp_path: Path,
) -> None:
    (trained / "weights" / "part-0.bin").write_bytes(b"evil" * 500_000)
    evil = build_image(trained, store, repository="r", lineage={})
    await push(registry, store, evil.digest, target.tagged("v2"))
    signature = await manifests.get(registry, target.tagged(signatures.tag(built.digest)))
    await manifests.put(registry, target.tagged(signatures.tag(evil.digest)), signature.data)
    with pytest.raises(errors.Permanent) as raised:
        await pull(
            registry, ModelStore(tmp_path / "other"), target.tagged("v2"), trusted_keys=[key.public_key()]
        )
    assert raised.value.reason == "SignatureInvalid"


async def test_each_key_adds_one_signature(
    registry: Registry,
    target: Reference,
    store: ModelStore,
    built: Built,
    key: ec.EllipticCurvePrivateKey,
    stranger: ec.EllipticCurvePrivateKey,
) -> None:
    for signer in (key, key, stranger, key):
        await push(registry, store, built.digest, target, signing_key=signer)
    stored = await manifests.get(registry, target.tagged(signatures.tag(built.digest)))
    assert len(stored.document["layers"]) == 2
    for signer in (key, stranger):
        await signatures.require(registry, target, built.digest, [signer.public_key()])


async def test_signing_keeps_annotations_of_other_signatures(
    registry: Registry,
    target: Reference,
    store: ModelStore,
    built: Built,
    key: ec.EllipticCurvePrivateKey,
    stranger: ec.EllipticCurvePrivateKey,
) -> None:
    signature_tag = target.tagged(signatures.tag(built.digest))
    await push(registry, store, built.digest, target, signing_key=stranger)
    foreign = (await manifests.get(registry, signature_tag)).document
    foreign["layers"][0]["annotations"]["dev.sigstore.cosign/certificate"] = "a certificate"
    del foreign["subject"], foreign["artifactType"]  # as cosign writes it
    await manifests.put(registry, signature_tag, oci.encode(foreign))
    await signatures.require(registry, target, built.digest, [stranger.public_key()])
    await push(registry, store, built.digest, target, signing_key=key)
    stored = await manifests.get(registry, signature_tag)
    assert stored.document["layers"][1] == foreign["layers"][0]
    assert len(stored.document["layers"]) == 2


@pytest.mark.parametrize("is_index", [True, False])
async def test_signing_is_refused_with_a_reason_when_a_document_of_others_has_a_lone_surrogate(
    registry: Registry,
    target: Reference,
    store: ModelStore,
    built: Built,
    key: ec.EllipticCurvePrivateKey,
    stranger: ec.EllipticCurvePrivateKey,
    *,
    is_index: bool,
) -> None:
    place = target.tagged(signatures.tag(built.digest))
    await push(registry, store, built.digest, target, signing_key=stranger)
    if is_index:
        place = target.tagged(referrers.fallback_tag(built.digest))
    stored = await manifests.find(registry, place)
    if stored is None:
        pytest.skip("this registry lists referrers itself")
    document = stored.document
    document["manifests" if is_index else "layers"][0]["annotations"] = {"a": "\ud800"}
    request = RegistryRequest(
        "PUT",
        target,
        f"manifests/{place.tag}",
        push=True,
        headers={"Content-Type": stored.media_type},
        body=(json.dumps(document).encode(),),
    )
    assert (await registry.send(request)).status == 201
    with pytest.raises(errors.Permanent) as raised:
        await push(registry, store, built.digest, target, signing_key=key)
    assert raised.value.reason == "InvalidImage"


async def test_new_signature_is_read_when_the_image_has_as_many_as_are_read_already(
    registry: Registry,
    target: Reference,
    store: ModelStore,
    built: Built,
    key: ec.EllipticCurvePrivateKey,
    stranger: ec.EllipticCurvePrivateKey,
) -> None:
    signature_tag = target.tagged(signatures.tag(built.digest))
    await push(registry, store, built.digest, target, signing_key=stranger)
    crowded = (await manifests.get(registry, signature_tag)).document
    crowded["layers"] *= signatures._MAX_SIGNATURES
    await manifests.put(registry, signature_tag, oci.encode(crowded))
    await push(registry, store, built.digest, target, signing_key=key)
    await signatures.require(registry, target, built.digest, [key.public_key()])


@pytest.mark.usefixtures("signed")
async def test_signature_without_its_tag_is_found_among_the_referrers(
    registry: Registry, target: Reference, built: Built, key: ec.EllipticCurvePrivateKey
) -> None:
    empty = oci.encode(
        {
            "schemaVersion": 2,
            "mediaType": oci.MANIFEST_TYPE,
            "artifactType": "test/none",
            "layers": [],
            "config": oci.descriptor(oci.EMPTY_TYPE, oci.EMPTY),
        }
    )
    await manifests.put(registry, target.tagged(signatures.tag(built.digest)), empty)
    await signatures.require(registry, target, built.digest, [key.public_key()])
