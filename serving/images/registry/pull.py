"""Pulls an image from a registry to the store, which shows it only when it is complete and has its digest.

Layers of stored images that a registry has or had are not downloaded again. A download that breaks resumes
within the pull; a pull that was killed starts again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any

from serving import errors
from serving.images.documents import image, oci
from serving.images.documents.image import Blob
from serving.images.documents.signing import SIGNATURE_ARTIFACT, PublicKey, by_fingerprint
from serving.images.imports.image_import import Import
from serving.images.registry import blobs, descriptors, manifests, referrers, signatures, transfers
from serving.images.registry.client import Registry
from serving.images.registry.reference import Reference
from serving.images.store.model_store import ModelStore

_log = logging.getLogger(__name__)

_KEPT = (SIGNATURE_ARTIFACT, oci.MODELPACK_TYPE, oci.LINEAGE_TYPE)
"""Referrers that are pulled too, so that the image can be pushed elsewhere and verified offline."""
_MAX_REFERRERS = 64
"""Most referrers of each kind that are pulled: anyone with the right to push could add any number."""
_MAX_REFERRER_BYTES = 16 * oci.MAX_MANIFEST
"""Most bytes of all pulled referrers and their own blobs: a ModelPack manifest is as large as the image's
manifest, other referrers have kilobytes.
"""


async def pull(
    registry: Registry,
    store: ModelStore,
    reference: Reference,
    *,
    trusted_keys: Sequence[PublicKey] = (),
) -> str:
    """Pull an image unless the store has it; return its manifest's digest.

    Args:
        registry: the client.
        store: gets the image.
        reference: with a tag or, better, a digest. Of an index, the image for linux/amd64 is pulled.
        trusted_keys: if any, the image must have a valid signature by one of them.

    Raises:
        errors.Permanent: `ImageNotFound`, `InvalidImage`, `Unauthorized`, `RegistryRefused`,
            `SignatureMissing`, `SignatureInvalid`.
        errors.Temporary: `RegistryUnavailable`, `DigestMismatch`, `DiskFull`; `ImageMissing`, the image was
            removed from the store during the pull.
    """
    try:
        return await _pull(registry, store, reference, trusted_keys)
    except errors.Permanent as error:
        if error.reason != "ImageMissing":
            raise
        raise errors.Temporary(error.reason, str(error)) from error


async def _pull(
    registry: Registry, store: ModelStore, reference: Reference, trusted_keys: Sequence[PublicKey]
) -> str:
    """Pull an image unless the store has it; raise Permanent `ImageMissing` if it is removed meanwhile."""
    if reference.digest and await _is_known(store, reference.digest):
        if trusted_keys and not await asyncio.to_thread(
            signatures.signers_in_store, store, reference.digest, by_fingerprint(trusted_keys)
        ):
            await signatures.require(registry, reference, reference.digest, trusted_keys)
        return reference.digest
    manifest = await manifests.get_image(registry, reference)
    if trusted_keys:
        await signatures.require(registry, reference, manifest.digest, trusted_keys)
    if not await _is_known(store, manifest.digest):
        await _pull_image(registry, store, reference.at(manifest.digest), manifest.data)
    await asyncio.to_thread(store.set_origin, manifest.digest, str(reference.at(manifest.digest)))
    return manifest.digest


async def _is_known(store: ModelStore, digest: str) -> bool:
    """Whether the store has the image, and a registry has or had it.

    An image that was only built here is pulled like a missing one: its digest alone gives no right to it.
    """
    return await asyncio.to_thread(lambda: store.has(digest) and store.origin(digest) is not None)


async def _pull_image(registry: Registry, store: ModelStore, reference: Reference, manifest: bytes) -> None:
    parsed = image.parse(manifest)
    limit = registry.settings.parallel
    # A thread for each transfer. `transfers` waits for its thread: at the end of the block none works.
    with ThreadPoolExecutor(limit, thread_name_prefix="pull") as threads:
        async with _Importing(store, manifest, str(reference)) as staged:
            shared = await asyncio.to_thread(_layers_of_registries, store)

            async def pull_layer(layer: image.Layer) -> None:
                blob = Blob(layer.digest, layer.size)
                if blob.digest not in shared or not await _from_store(store, staged, threads, blob):
                    source = blobs.chunks(registry, reference, blob)
                    await transfers.download(threads, source, _adding(staged, blob.digest))

            config = await blobs.read(registry, reference, _checked_size(parsed.config))
            await asyncio.to_thread(staged.add_blob, parsed.config.digest, config)
            await transfers.in_parallel(
                limit, pull_layer, {layer.digest: layer for layer in parsed.layers}.values()
            )
            await _pull_referrers(registry, reference, oci.digest_of(manifest), parsed, staged)


def _adding(staged: Import, digest: str) -> Callable[[Iterable[bytes]], None]:
    return lambda chunks: staged.add_layer(digest, chunks)


def _layers_of_registries(store: ModelStore) -> set[str]:
    """Return the digests of layers that a registry has or had.

    Other layers belong to the namespace that built them: a manifest that names the digest of such a layer
    must not copy it into another image.
    """
    layers: set[str] = set()
    for digest in store.images():
        with suppress(errors.Permanent):  # removed or broken meanwhile
            if store.origin(digest) is not None:
                layers |= {layer.digest for layer in image.parse(store.read_manifest(digest)).layers}
    return layers


async def _from_store(store: ModelStore, staged: Import, threads: ThreadPoolExecutor, blob: Blob) -> bool:
    """Copy a layer from another stored image; return False if the layer must be downloaded."""
    try:
        if await asyncio.to_thread(store.blob_size, blob.digest) != blob.size:
            return False
        chunks = await asyncio.to_thread(store.read_blob, blob.digest)
        await transfers.local(threads, chunks, _adding(staged, blob.digest))
    except (errors.Permanent, errors.Temporary):
        return False  # removed or broken meanwhile
    return True


async def _pull_referrers(
    registry: Registry, reference: Reference, digest: str, parsed: image.Image, staged: Import
) -> None:
    """Pull the referrers of an image. The image is complete without them, so unreadable ones are ignored."""
    listed: Sequence[Mapping[str, Any]] = ()
    with referrers.unreadable_ignored(reference):
        listed = await referrers.find(registry, reference, digest)
    room = _MAX_REFERRER_BYTES
    for kind in _KEPT:
        places = [reference.at(entry["digest"]) for entry in listed if entry.get("artifactType") == kind]
        if len(places) > _MAX_REFERRERS:
            _log.warning("%s: only %d of %d %s are pulled", reference, _MAX_REFERRERS, len(places), kind)
        for place in places[:_MAX_REFERRERS]:
            with referrers.unreadable_ignored(place):
                manifest = await manifests.find(registry, place)
                if manifest is None or image.subject(manifest.data) != digest:
                    continue  # a stale or false entry
                own = _own_blobs(manifest, kind, parsed)
                room -= len(manifest.data) + sum(blob.size for blob in own)
                if room < 0:
                    _log.warning(
                        "%s: the documents about it have too many bytes: no more are pulled", reference
                    )
                    return
                for blob in own:
                    data = await blobs.read(registry, reference, blob)
                    # The store would list such a blob as a referrer too, without the checks of `_own_blobs`.
                    if image.subject(data) is not None:
                        raise image.invalid(f"its blob {blob.digest} refers to an image")
                    await asyncio.to_thread(staged.add_blob, blob.digest, data)
                await asyncio.to_thread(staged.add_blob, manifest.digest, manifest.data)


def _own_blobs(manifest: manifests.StoredManifest, kind: str, parsed: image.Image) -> Sequence[Blob]:
    """Return the blobs that a referrer has besides those of its image `parsed`.

    Only a ModelPack describes blobs of the image itself, with their true sizes. Other referrers must
    describe small blobs only, which their readers load into memory: a layer can have gigabytes.

    Raises:
        errors.Permanent: `InvalidImage`, the referrer is not of `kind`, has a blob that is too large, or
            describes a blob of the image without being a ModelPack or with another size.
    """
    actual = oci.referrer(manifest.document, manifest.data).get("artifactType")
    if actual != kind:
        raise image.invalid(f"it is listed as {kind}, and is {actual}")
    sizes = {parsed.config.digest: parsed.config.size} | {layer.digest: layer.size for layer in parsed.layers}
    described = descriptors.blobs_of(manifest.document)
    for blob in described:
        if blob.digest in sizes and (kind != oci.MODELPACK_TYPE or blob.size != sizes[blob.digest]):
            raise image.invalid(f"its blob {blob.digest} with {blob.size} bytes is one of the image")
    return tuple({_checked_size(blob) for blob in described if blob.digest not in sizes})


def _checked_size(blob: Blob) -> Blob:
    """Return a blob that is read into memory, after checking that it is small enough for that."""
    if blob.size > oci.MAX_MANIFEST:
        raise errors.Permanent(
            "InvalidImage",
            f"{blob.digest} is a document, which must have at most {oci.MAX_MANIFEST} bytes, not {blob.size}",
        )
    return blob


class _Importing:
    """`ModelStore.importing` on the event loop: it writes and syncs on entry and exit, so both run in a
    thread.
    """

    def __init__(self, store: ModelStore, manifest: bytes, origin: str) -> None:
        self._context = store.importing(manifest, origin=origin)

    async def __aenter__(self) -> Import:
        entering = asyncio.ensure_future(asyncio.to_thread(self._context.__enter__))
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError as error:
            await asyncio.wait([entering])
            if entering.exception() is None:
                await self.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self._context.__exit__, kind, error, trace))
