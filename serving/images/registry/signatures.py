"""Signatures of an image in its registry, where cosign reads them: at the tag `sha256-<hex>.sig` and as a
referrer.

Both places have the same manifest, with one layer for each signature. A further signer writes a manifest with
one more layer and the earlier ones.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from serving import errors
from serving.images.documents import oci, signing
from serving.images.documents.image import Blob
from serving.images.documents.signing import SIGNATURE_ARTIFACT, PrivateKey, PublicKey, Signature
from serving.images.registry import blobs, descriptors, manifests, referrers, responses, uploads
from serving.images.registry.client import Registry
from serving.images.registry.reference import Reference
from serving.images.store.model_store import ModelStore

_MAX_SIGNATURES = 64
"""Most referrers with signatures, and most layers of one signature manifest, that are read: anyone with the
right to push could add any number.
"""


class _SignatureLayer(NamedTuple):
    """A layer of a signature manifest."""

    payload: Blob
    """The signed document."""
    signature: str
    """The signature over the payload, in base64."""


def tag(digest: str) -> str:
    """Return the tag of an image's signatures."""
    return f"{referrers.fallback_tag(digest)}.sig"


async def attach(registry: Registry, target: Reference, digest: str, key: PrivateKey) -> None:
    """Sign an image in the registry, unless this key has signed it already; signatures by other keys remain.

    Raises:
        errors.Temporary, errors.Permanent: those of a push.
    """
    earlier = await manifests.find(registry, target.tagged(tag(digest)))
    if earlier is not None:
        descriptors.blobs_of(earlier.document)  # raises for a malformed manifest, which is not extended
    existing = await _signatures(registry, target, earlier.data) if earlier else []
    if valid(existing, digest, [key.public_key()]):
        return
    signature = signing.sign(signing.make_payload(target.name, digest), key)
    image = await manifests.get(registry, target.at(digest))
    subject = oci.descriptor(image.media_type, image.data)
    existing_layers = descriptors.layers_of(earlier.document) if earlier else []
    # The new signature is the first layer, as only the first _MAX_SIGNATURES layers are read.
    manifest, config = signing.documents([signing.layer(signature), *existing_layers], subject)
    for data in (config, signature.payload):
        blob = Blob(oci.digest_of(data), len(data))
        if not await blobs.exists(registry, target, blob.digest, push=True):
            await uploads.upload(registry, target, blob, _once(data))
    # The tag last: above, a signature at the tag counts as attached in both places.
    await referrers.add(registry, target, digest, manifest)
    await manifests.put(registry, target.tagged(tag(digest)), manifest)


def _once(data: bytes) -> Callable[[], list[bytes]]:
    """Return a source for `uploads.upload` with the data as its only chunk."""
    return lambda: [data]


async def require(registry: Registry, target: Reference, digest: str, keys: Sequence[PublicKey]) -> None:
    """Check that a trusted key has signed the image.

    Raises:
        errors.Permanent: `SignatureMissing`, it has no signature; `SignatureInvalid`, none is by these keys;
            `Unauthorized`, `RegistryRefused`.
        errors.Temporary: those of `_attached`.
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
    # Unlike in `require`, a damaged place or an unreadable list of referrers is no error: its signers are
    # missing.
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
    for descriptor, document in store.referrers(digest):
        if descriptor.get("artifactType") == SIGNATURE_ARTIFACT:
            layers = _signature_layers(document)
            payloads = {
                blob.digest: b"".join(store.read_blob(blob.digest))
                for blob in {layer.payload for layer in layers}
                # A descriptor can name any blob of the store with any size: a layer of gigabytes too.
                if store.blob_size(blob.digest) == blob.size
            }
            names |= signing.signers(_signatures_of(layers, payloads), digest, keys)
    return names


async def _attached(registry: Registry, target: Reference, digest: str) -> AsyncIterator[list[Signature]]:
    """Yield the signatures of an image at each place in turn; an empty list if a place has no readable ones.

    Raises:
        errors.Temporary: `DigestMismatch`, after all places: another try may succeed, as a broken link may
            have changed the bytes. Other temporary errors are raised at once.
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
                raise  # `unreadable_ignored` ignores a DigestMismatch, and raises other temporary errors
        yield present
    if mismatch is not None:
        raise mismatch


async def _places(registry: Registry, target: Reference, digest: str) -> AsyncIterator[Reference]:
    """Yield the references at which an image's signature manifests may be: the tag, then the referrers."""
    yield target.tagged(tag(digest))
    listed = await referrers.find(registry, target, digest)
    signatures = [entry for entry in listed if entry.get("artifactType") == SIGNATURE_ARTIFACT]
    for entry in signatures[:_MAX_SIGNATURES]:
        yield target.at(entry["digest"])


async def _signatures(registry: Registry, target: Reference, manifest: bytes) -> list[Signature]:
    """Return the signatures in a signature manifest, with payloads from the registry."""
    layers = _signature_layers(manifest)
    payloads: dict[str, bytes] = {}
    for blob in {layer.payload for layer in layers}:
        payloads[blob.digest] = await blobs.read(registry, target, blob)
    return _signatures_of(layers, payloads)


def _signatures_of(layers: Iterable[_SignatureLayer], payloads: Mapping[str, bytes]) -> list[Signature]:
    """Return the signatures whose payloads are in `payloads`, which has the bytes by digest."""
    return [
        Signature(payloads[layer.payload.digest], layer.signature)
        for layer in layers
        if layer.payload.digest in payloads
    ]


def _signature_layers(manifest: bytes) -> list[_SignatureLayer]:
    """Return the valid layers of a signature manifest; all their payloads together fit into memory."""
    signature_layers: list[_SignatureLayer] = []
    room = oci.MAX_MANIFEST
    for layer in descriptors.layers_of(responses.json_object(manifest))[:_MAX_SIGNATURES]:
        if not isinstance(layer, dict) or layer.get("mediaType") != signing.PAYLOAD_TYPE:
            continue
        signature = descriptors.mapping(layer, "annotations").get(signing.SIGNATURE_ANNOTATION)
        payload = descriptors.blob(layer)
        if isinstance(signature, str) and payload.size <= room:
            signature_layers.append(_SignatureLayer(payload, signature))
            room -= payload.size
    return signature_layers


def valid(signatures: Sequence[Signature], digest: str, keys: Sequence[PublicKey]) -> bool:
    """Whether one of the signatures is of this image and by one of these keys."""
    return any(signing.verify(signature, digest, keys) for signature in signatures)
