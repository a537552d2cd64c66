"""Signatures of an image in its registry, where cosign reads them: at the tag `sha256-<hex>.sig` and as a
referrer.

Both are one manifest, which is replaced by one with a further layer for each signer.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

from serving import errors
from serving.images.documents import oci, signing
from serving.images.documents.image import Blob
from serving.images.documents.signing import SIGNATURE_ARTIFACT, PrivateKey, PublicKey, Signature
from serving.images.registry import blobs, descriptors, manifests, referrers, responses, uploads
from serving.images.registry.client import Registry
from serving.images.registry.reference import Reference
from serving.images.store.model_store import ModelStore

_MAX_SIGNATURES = 64
"""Most that are read per image: anyone with the right to push could add any number."""


def tag(digest: str) -> str:
    """Return the tag of an image's signatures."""
    return f"{referrers.fallback_tag(digest)}.sig"


async def attach(registry: Registry, target: Reference, digest: str, key: PrivateKey) -> None:
    """Sign an image in the registry, unless this key has signed it already; other signatures stay.

    Raises:
        errors.Temporary, errors.Permanent: those of a push.
    """
    present = await manifests.find(registry, target.tagged(tag(digest)))
    if present is not None:
        descriptors.blobs_of(present.document)  # raises for a malformed manifest, which is not extended
    existing = await _signatures(registry, target, present.data) if present else []
    if valid(existing, digest, [key.public_key()]):
        return
    signature = signing.sign(signing.payload(target.name, digest), key)
    image = await manifests.get(registry, target.at(digest))
    subject = oci.descriptor(image.media_type, image.data)
    existing_layers = descriptors.layers_of(present.document) if present else []
    manifest, config = signing.documents([*existing_layers, signing.layer(signature)], subject)
    for data in (config, signature.payload):
        blob = Blob(oci.digest_of(data), len(data))
        if not await blobs.exists(registry, target, blob.digest, push=True):
            await uploads.upload(registry, target, blob, _once(data))
    await referrers.add(registry, target, digest, manifest)
    await manifests.put(registry, target.tagged(tag(digest)), manifest)


def _once(data: bytes) -> Callable[[], list[bytes]]:
    return lambda: [data]


async def require(registry: Registry, target: Reference, digest: str, keys: Sequence[PublicKey]) -> None:
    """Check that a trusted key has signed the image.

    Raises:
        errors.Permanent: `SignatureMissing`, it has no signature; `SignatureInvalid`, none is by these keys.
    """
    count = 0
    async for present in _attached(registry, target, digest):
        if valid(present, digest, keys):
            return
        count += len(present)
    if not count:
        raise errors.Permanent("SignatureMissing", f"{target.at(digest)} has no signature")
    raise errors.Permanent(
        "SignatureInvalid", f"none of the {count} signatures of {target.at(digest)} is by a trusted key"
    )


async def signers(
    registry: Registry, target: Reference, digest: str, keys: Mapping[str, PublicKey]
) -> frozenset[str]:
    """Return the names of the keys that have signed the image in the registry.

    Raises:
        errors.Temporary, errors.Permanent: those of a pull.
    """
    names: frozenset[str] = frozenset()
    with referrers.unreadable_ignored(target.at(digest)):
        async for present in _attached(registry, target, digest):
            names |= signing.signers(present, digest, keys)
            if len(names) == len(keys):
                break
    return names


def signers_in_store(store: ModelStore, digest: str, keys: Mapping[str, PublicKey]) -> frozenset[str]:
    """Return the names of the keys that have signed a stored image; blocking."""
    names: frozenset[str] = frozenset()
    if not keys:
        return names
    for fields, document in store.referrers(digest):
        if fields.get("artifactType") == SIGNATURE_ARTIFACT:
            listed = _listed(document)
            payloads = {
                blob.digest: b"".join(store.read_blob(blob.digest))
                for blob in {blob for blob, _ in listed}
                # A descriptor can name any blob of the store with any size: a layer of gigabytes too.
                if store.blob_size(blob.digest) == blob.size
            }
            names |= signing.signers(_signatures_of(listed, payloads), digest, keys)
    return names


async def _attached(registry: Registry, target: Reference, digest: str) -> AsyncIterator[list[Signature]]:
    """Yield the signatures of an image, for each place that has some; those that are malformed are ignored.

    Raises:
        errors.Temporary: `DigestMismatch`, after all places: a broken link may cause it, and pass.
    """
    mismatch: errors.Temporary | None = None
    async for place in _places(registry, target, digest):
        present: list[Signature] = []
        with referrers.unreadable_ignored(place):
            try:
                manifest = await manifests.find(registry, place)
                present = await _signatures(registry, target, manifest.data) if manifest is not None else []
            except errors.Temporary as error:
                mismatch = error
                raise
        yield present
    if mismatch is not None:
        raise mismatch


async def _places(registry: Registry, target: Reference, digest: str) -> AsyncIterator[Reference]:
    yield target.tagged(tag(digest))
    listed = await referrers.find(registry, target, digest)
    signatures = [entry for entry in listed if entry.get("artifactType") == SIGNATURE_ARTIFACT]
    for entry in signatures[:_MAX_SIGNATURES]:
        yield target.at(entry["digest"])


async def _signatures(registry: Registry, target: Reference, manifest: bytes) -> list[Signature]:
    listed = _listed(manifest)
    payloads: dict[str, bytes] = {}
    for blob in {blob for blob, _ in listed}:
        payloads[blob.digest] = await blobs.read(registry, target, blob)
    return _signatures_of(listed, payloads)


def _signatures_of(listed: Iterable[tuple[Blob, str]], payloads: Mapping[str, bytes]) -> list[Signature]:
    """Return the signatures whose payloads are known, by digest."""
    return [
        Signature(payloads[blob.digest], signature) for blob, signature in listed if blob.digest in payloads
    ]


def _listed(manifest: bytes) -> list[tuple[Blob, str]]:
    """Return the payloads and signatures of a signature manifest, of which all payloads fit into memory."""
    signatures: list[tuple[Blob, str]] = []
    room = oci.MAX_MANIFEST
    for layer in descriptors.layers_of(responses.json_object(manifest))[:_MAX_SIGNATURES]:
        if not isinstance(layer, dict) or layer.get("mediaType") != signing.PAYLOAD_TYPE:
            continue
        signature = descriptors.mapping(layer, "annotations").get(signing.SIGNATURE_ANNOTATION)
        payload = descriptors.blob(layer)
        if isinstance(signature, str) and payload.size <= room:
            signatures.append((payload, signature))
            room -= payload.size
    return signatures


def valid(signatures: Sequence[Signature], digest: str, keys: Sequence[PublicKey]) -> bool:
    """Whether one of the signatures is of this image and by one of these keys."""
    return any(signing.verify(signature, digest, keys) for signature in signatures)
