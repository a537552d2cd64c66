"""Documents about an image that someone else has added to its registry: whoever may push can add any."""

import importlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec

from serving import errors
from serving.images.building.model_image import Built
from serving.images.documents import image, oci, signing
from serving.images.registry import (
    Credentials,
    Reference,
    Registry,
    manifests,
    pull,
    push,
    referrers,
    signatures,
)
from serving.images.store.model_store import CountedStore, ModelStore
from serving.settings import DEFAULTS
from tests.fakes.registry import FakeRegistry

Transfer = Callable[[], Awaitable[set[str]]]
SHORT = b"a blob of the registry"
OTHER = ec.generate_private_key(ec.SECP256R1())
PULL = importlib.import_module("serving.images.registry.pull")  # the package has the function of this name


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
def transfer(
    registry: Registry, target: Reference, store: ModelStore, built: Built, second_store: ModelStore
) -> Transfer:
    """Pushes the image, pulls it into the second store, and returns the documents about it there."""

    async def transferred() -> set[str]:
        await push(registry, store, built.digest, target)
        assert await pull(registry, second_store, target) == built.digest
        return referrers_in(second_store, built)

    return transferred


@pytest.fixture
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def about(store: ModelStore, built: Built, kind: str, layers: Any, **others: Any) -> bytes:
    """Return a document of this kind that refers to the image."""
    return oci.encode(
        {
            "schemaVersion": 2,
            "mediaType": oci.MANIFEST_TYPE,
            "artifactType": kind,
            "config": oci.descriptor(oci.EMPTY_TYPE, oci.EMPTY),
            "layers": layers,
            "subject": oci.descriptor(oci.MANIFEST_TYPE, store.read_manifest(built.digest)),
            **others,
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


def add(fake: FakeRegistry, *documents: bytes) -> None:
    """Add manifests to the registry."""
    fake.manifests.update((oci.digest_of(document), document) for document in documents)


def referrers_in(store: ModelStore, built: Built) -> set[str]:
    return {described["digest"] for described, _ in store.referrers(built.digest)}


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
    signed = signing.sign(signing.make_payload("registry.example/a", built.digest), key)
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
    fake: FakeRegistry, store: ModelStore, built: Built, transfer: Transfer
) -> None:
    add(fake, signature_of_layers(store, built))
    assert await transfer() == {built.modelpack_digest, built.lineage_digest}


@pytest.mark.parametrize("kind", [signing.SIGNATURE_ARTIFACT, oci.LINEAGE_TYPE, oci.MODELPACK_TYPE])
@pytest.mark.parametrize(
    "layers",
    [
        [{"mediaType": "x", "digest": "no", "size": 1}],
        [oci.descriptor("x", b"absent")],
        [oci.descriptor("x", SHORT) | {"size": 1}],
        [oci.descriptor("x", SHORT) | {"size": 100}],
        [oci.descriptor("x", SHORT) | {"size": oci.MAX_MANIFEST + 1}],
    ],
    ids=["no digest", "no blob", "a longer blob", "a shorter blob", "too large"],
)
async def test_a_signed_image_is_pulled_without_a_document_about_it_that_is_malformed(
    fake: FakeRegistry,
    target: Reference,
    store: ModelStore,
    built: Built,
    second_store: ModelStore,
    key: ec.EllipticCurvePrivateKey,
    kind: str,
    layers: list[dict[str, Any]],
) -> None:
    fake.blobs[oci.digest_of(SHORT)] = SHORT
    signature = {"annotations": {signing.SIGNATURE_ANNOTATION: "x"}, "mediaType": signing.PAYLOAD_TYPE}
    malformed = about(store, built, kind, [layer | signature for layer in layers])
    add(fake, malformed)
    async with Registry(Credentials.none(), replace(DEFAULTS.registry, attempts=1)) as registry:
        await push(registry, store, built.digest, target, signing_key=key)
        fake.manifests[signatures.tag(built.digest)] = malformed
        pulled = await pull(registry, second_store, target, trusted_keys=[key.public_key()])
        signers = await signatures.signers(
            registry, target, built.digest, signing.by_fingerprint([key.public_key(), OTHER.public_key()])
        )
    assert pulled == built.digest
    assert signers == {signing.fingerprint(key.public_key())}
    assert referrers_in(second_store, built) > {built.modelpack_digest, built.lineage_digest}
    assert oci.digest_of(malformed) not in referrers_in(second_store, built)
    keys = signing.by_fingerprint([key.public_key()])
    assert signatures.signers_in_store(second_store, built.digest, keys) == frozenset(keys)


async def test_a_wrong_payload_stays_a_temporary_error_when_no_other_signature_is_right(
    fake: FakeRegistry, target: Reference, store: ModelStore, built: Built, key: ec.EllipticCurvePrivateKey
) -> None:
    async with Registry(Credentials.none(), replace(DEFAULTS.registry, attempts=1)) as registry:
        await push(registry, store, built.digest, target, signing_key=key)
        payload = signing.make_payload(target.name, built.digest)
        fake.blobs[oci.digest_of(payload)] = bytes(len(payload))
        with pytest.raises(errors.Temporary) as raised:
            await signatures.require(registry, target, built.digest, [key.public_key()])
    assert raised.value.reason == "DigestMismatch"


async def test_signers_are_complete_when_one_transfer_of_a_payload_brings_other_bytes(
    fake: FakeRegistry, target: Reference, store: ModelStore, built: Built, key: ec.EllipticCurvePrivateKey
) -> None:
    keys = signing.by_fingerprint([key.public_key()])
    async with Registry(Credentials.none(), replace(DEFAULTS.registry, attempts=1)) as registry:
        await push(registry, store, built.digest, target, signing_key=key)
        del fake.manifests[signatures.tag(built.digest)]  # the referrer alone has the signature
        fake.garble_blobs = 1
        signers = await signatures.signers(registry, target, built.digest, keys)
    assert fake.garble_blobs == 0
    assert signers == frozenset(keys)


async def test_a_document_is_left_out_when_a_blob_of_it_refers_to_the_image_too(
    fake: FakeRegistry, store: ModelStore, built: Built, transfer: Transfer
) -> None:
    hidden = signature_of_layers(store, built)
    fake.blobs[oci.digest_of(hidden)] = hidden
    add(fake, about(store, built, oci.LINEAGE_TYPE, [oci.descriptor("x", hidden)]))
    assert await transfer() == {built.modelpack_digest, built.lineage_digest}


async def test_documents_of_one_kind_are_pulled_up_to_a_number(
    fake: FakeRegistry,
    store: ModelStore,
    built: Built,
    transfer: Transfer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PULL, "_MAX_REFERRERS", 3)
    add(fake, *(about(store, built, oci.LINEAGE_TYPE, [], annotations={"n": str(n)}) for n in range(5)))
    pulled = await transfer()
    assert built.modelpack_digest in pulled
    assert len(pulled) == 1 + 3


async def test_documents_are_pulled_up_to_a_number_of_bytes(
    fake: FakeRegistry,
    store: ModelStore,
    built: Built,
    transfer: Transfer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PULL, "_MAX_REFERRER_BYTES", 50_000)
    large = [bytes([n]) * 20_000 for n in range(5)]
    fake.blobs.update((oci.digest_of(blob), blob) for blob in large)
    add(fake, *(about(store, built, oci.LINEAGE_TYPE, [oci.descriptor("x", blob)]) for blob in large))
    pulled = await transfer()
    assert built.modelpack_digest in pulled
    assert 0 < len(pulled - {built.modelpack_digest, built.lineage_digest}) <= 2


async def test_no_further_page_of_referrers_is_read_when_there_are_too_many_bytes(
    registry: Registry,
    fake: FakeRegistry,
    target: Reference,
    store: ModelStore,
    built: Built,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(referrers, "_MAX_LISTED_BYTES", 500)
    fake.page = 1
    add(fake, *(about(store, built, oci.LINEAGE_TYPE, [], annotations={"n": str(n)}) for n in range(20)))
    listed = await referrers.find(registry, target, built.digest)
    assert 0 < len(listed) <= 3
    assert len(fake.log) == len(listed)


async def test_a_warning_is_logged_when_there_are_too_many_pages_of_referrers(
    registry: Registry,
    fake: FakeRegistry,
    target: Reference,
    store: ModelStore,
    built: Built,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(referrers, "_MAX_PAGES", 2)
    fake.page = 1
    documents = [about(store, built, oci.LINEAGE_TYPE, [], annotations={"n": str(n)}) for n in range(3)]
    add(fake, *documents[:2])
    await referrers.find(registry, target, built.digest)
    assert caplog.messages == []
    add(fake, documents[2])
    assert len(await referrers.find(registry, target, built.digest)) == 2
    assert caplog.messages == [f"{target.at(built.digest)}: only the first 2 referrers are read"]


@pytest.mark.parametrize(
    "blob", [None, b"[]", b"no JSON", b"[" * 100_000], ids=["no layers", "a list", "no JSON", "deep"]
)
def test_names_of_an_image_are_read_when_a_lineage_document_has_none(
    store: ModelStore, built: Built, blob: bytes | None
) -> None:
    layers = None if blob is None else [oci.descriptor(oci.LINEAGE_TYPE, blob)]
    documents = [] if blob is None else [blob]
    record(store, built, *documents, about(store, built, oci.LINEAGE_TYPE, layers))
    assert "slipway.local/default/digits" in store.repositories(built.digest)


async def test_no_lineage_is_pulled_when_it_names_a_layer_of_the_image(
    fake: FakeRegistry, store: ModelStore, built: Built, transfer: Transfer
) -> None:
    layer = json.loads(store.read_manifest(built.digest))["layers"][0]
    add(fake, about(store, built, oci.LINEAGE_TYPE, [layer]))
    assert await transfer() == {built.modelpack_digest, built.lineage_digest}


@pytest.mark.parametrize("is_index", [True, False])
async def test_index_at_the_fallback_tag_keeps_what_other_tools_have_written_into_it(
    fake: FakeRegistry,
    registry: Registry,
    target: Reference,
    store: ModelStore,
    built: Built,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_index: bool,
) -> None:
    put = manifests.put

    async def unlisted(*given: Any) -> bool:
        await put(*given)
        return False

    monkeypatch.setattr(manifests, "put", unlisted)  # of a registry without the referrers API
    others = [{"mediaType": oci.MANIFEST_TYPE, "digest": f"sha512:{'0' * 128}", "size": 7}, "unknown"]
    written: dict[str, Any] = {"mediaType": oci.INDEX_TYPE, "annotations": {"by": "another tool"}}
    written |= {"schemaVersion": 2, "manifests": others} if is_index else {"layers": []}
    tag = referrers.fallback_tag(built.digest)
    fake.manifests[tag] = oci.encode(written)
    document = about(store, built, "test/kind", [])
    await referrers.add(registry, target, built.digest, document)
    index = json.loads(fake.manifests[tag])
    entry = index["manifests"].pop()
    assert (entry["digest"], entry["artifactType"]) == (oci.digest_of(document), "test/kind")
    kept = written if is_index else {"schemaVersion": 2, "mediaType": oci.INDEX_TYPE, "manifests": []}
    assert index == kept
