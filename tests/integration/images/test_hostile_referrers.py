"""Documents about an image that someone else has added to its registry: whoever may push can add any."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec

from serving.images.capture.build import Built
from serving.images.documents import image, oci, signing
from serving.images.registry import Reference, Registry, pull, push, signatures
from serving.images.store.model_store import CountedStore, ModelStore
from tests.fakes.registry import FakeRegistry


@pytest.fixture
def fake() -> FakeRegistry:
    return FakeRegistry(blobs={oci.digest_of(oci.EMPTY): oci.EMPTY})


@pytest.fixture
async def target(fake: FakeRegistry) -> AsyncIterator[Reference]:
    runner = web.AppRunner(fake.app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield Reference.parse(f"127.0.0.1:{runner.addresses[0][1]}/models/a:v1")
    await runner.cleanup()


@pytest.fixture
def second_store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "other")


@pytest.fixture
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def about(store: ModelStore, built: Built, kind: str, layers: list[dict[str, Any]]) -> bytes:
    """Return a document of this kind that refers to the image."""
    return oci.encode(
        {
            "schemaVersion": 2,
            "mediaType": oci.MANIFEST_TYPE,
            "artifactType": kind,
            "config": oci.descriptor(oci.EMPTY_TYPE, oci.EMPTY),
            "layers": layers,
            "subject": oci.descriptor(oci.MANIFEST_TYPE, store.read_manifest(built.digest)),
        }
    )


def signature_of_layers(store: ModelStore, built: Built) -> bytes:
    """Return a signature document whose payloads are a layer of the image, which it says has one byte."""
    largest = max(image.parse(store.read_manifest(built.digest)).layers, key=lambda layer: layer.size)
    payload = {
        "mediaType": signing.PAYLOAD_TYPE,
        "digest": largest.digest,
        "size": 1,
        "annotations": {signing.SIGNATURE_ANNOTATION: "x"},
    }
    return about(store, built, signing.SIGNATURE_ARTIFACT, [payload] * 64)


def record(store: ModelStore, built: Built, *documents: bytes) -> None:
    """Insert the image again with these documents about it and their blobs."""
    manifest = store.read_manifest(built.digest)
    parsed = image.parse(manifest)
    with store.importing(manifest) as arriving:
        for layer in parsed.layers:
            arriving.add_layer(layer.digest, store.read_blob(layer.digest))
        for data in (b"".join(store.read_blob(parsed.config.digest)), oci.EMPTY, *documents):
            arriving.add_blob(oci.digest_of(data), data)


def test_no_layer_is_read_when_a_stored_signature_names_it_as_its_payload(
    store: ModelStore, built: Built, key: ec.EllipticCurvePrivateKey
) -> None:
    record(store, built, signature_of_layers(store, built))
    read: list[int] = []
    keys = signing.by_fingerprint([key.public_key()])
    counted = CountedStore(store.root, read.append)
    assert signatures.signers_in_store(counted, built.digest, keys) == frozenset()
    assert read == []


def test_a_payload_is_read_once_when_many_signatures_have_it(
    store: ModelStore, built: Built, key: ec.EllipticCurvePrivateKey
) -> None:
    signed = signing.sign(signing.payload("registry.example/a", built.digest), key)
    document = about(store, built, signing.SIGNATURE_ARTIFACT, [signing.layer(signed)] * 64)
    record(store, built, signed.payload, document)
    read: list[int] = []
    keys = signing.by_fingerprint([key.public_key()])
    counted = CountedStore(store.root, read.append)
    assert signatures.signers_in_store(counted, built.digest, {}) == frozenset()
    assert read == []
    assert signatures.signers_in_store(counted, built.digest, keys) == frozenset(keys)
    assert read == [len(signed.payload)]


async def test_a_pull_leaves_out_a_signature_of_which_payloads_are_layers_of_the_image(
    registry: Registry,
    fake: FakeRegistry,
    target: Reference,
    store: ModelStore,
    built: Built,
    second_store: ModelStore,
) -> None:
    await push(registry, store, built.digest, target)
    hostile = signature_of_layers(store, built)
    fake.manifests[oci.digest_of(hostile)] = hostile
    assert await pull(registry, second_store, target) == built.digest
    assert {described["digest"] for described, _ in second_store.referrers(built.digest)} == {
        built.modelpack,
        built.lineage,
    }
