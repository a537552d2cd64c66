"""An image from a registry into the store. Nothing is visible before all of it is there and has its digest.

A layer that another stored image has is not downloaded. A broken download goes on where it broke while the
pull lasts; killed, a pull begins anew.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from serving import errors
from serving.images.documents import image, oci
from serving.images.documents.image import Blob
from serving.images.documents.signing import SIGNATURE_ARTIFACT, PublicKey
from serving.images.imports.image_import import Import
from serving.images.registry import blobs, descriptors, manifests, parallel, referrers, signatures, transfers
from serving.images.registry.client import Registry
from serving.images.registry.reference import Reference
from serving.images.store.model_store import ModelStore

_KEPT = frozenset({oci.MODELPACK_TYPE, oci.LINEAGE_TYPE, SIGNATURE_ARTIFACT})
"""Documents that come along, so that a pulled image can be pushed on, and verified without the registry."""


async def pull(
    registry: Registry,
    store: ModelStore,
    reference: Reference,
    *,
    trusted_keys: Sequence[PublicKey] = (),
) -> str:
    """Bring an image into the store, unless it is there; return its manifest's digest.

    Args:
        registry: the client.
        store: where to.
        reference: with a tag or, better, a digest; of an index, the image for linux/amd64 is taken.
        trusted_keys: the image must have a valid signature by one of them.

    Raises:
        errors.Permanent: `ImageNotFound`, `InvalidImage`, `Unauthorized`, `SignatureMissing`,
            `SignatureInvalid`.
        errors.Temporary: `RegistryUnavailable`, `DigestMismatch` (wrong bytes: try again, but not for ever),
            `DiskFull`.
    """
    if reference.digest and await _has(store, reference.digest):
        if trusted_keys and not await asyncio.to_thread(_trusted_here, store, reference.digest, trusted_keys):
            await signatures.require(registry, reference, reference.digest, trusted_keys)
        return reference.digest
    found = await manifests.get_image(registry, reference)
    if trusted_keys:
        await signatures.require(registry, reference, found.digest, trusted_keys)
    if not await _has(store, found.digest):
        await _bring(registry, store, reference.at(found.digest), found.data)
    await asyncio.to_thread(store.set_origin, found.digest, str(reference.at(found.digest)))
    return found.digest


async def _has(store: ModelStore, digest: str) -> bool:
    return await asyncio.to_thread(store.has, digest)


def _trusted_here(store: ModelStore, digest: str, keys: Sequence[PublicKey]) -> bool:
    stored = [
        data for fields, data in store.referrers(digest) if fields.get("artifactType") == SIGNATURE_ARTIFACT
    ]

    def read(blob: Blob) -> bytes:
        return b"".join(store.read_blob(blob.digest))

    return any(signatures.valid(signatures.signatures_in(data, read), digest, keys) for data in stored)


async def _bring(registry: Registry, store: ModelStore, reference: Reference, manifest: bytes) -> None:
    parsed = image.parse(manifest)
    limit = registry.settings.parallel
    with ThreadPoolExecutor(limit, thread_name_prefix="pull") as threads:
        async with _Importing(store, manifest, str(reference)) as staged:

            async def layer(wanted: image.Layer) -> None:
                blob = Blob(wanted.digest, wanted.size)
                if not await _from_store(store, staged, threads, blob):
                    source = blobs.pieces(registry, reference, blob)
                    await transfers.download(threads, source, _adding(staged, blob.digest))

            config = await blobs.read(registry, reference, _small(parsed.config))
            await asyncio.to_thread(staged.add_blob, parsed.config.digest, config)
            await parallel.run(limit, layer, {found.digest: found for found in parsed.layers}.values())
            await _bring_documents(registry, reference, oci.digest_of(manifest), parsed, staged)


def _adding(staged: Import, digest: str) -> Callable[[Iterable[bytes]], None]:
    return lambda pieces: staged.add_layer(digest, pieces)


async def _from_store(store: ModelStore, staged: Import, threads: ThreadPoolExecutor, blob: Blob) -> bool:
    """Take a layer over from an image that is there already; False to download it."""
    try:
        if await asyncio.to_thread(store.blob_size, blob.digest) != blob.size:
            return False
        chunks = await asyncio.to_thread(store.read_blob, blob.digest)
        await transfers.local(threads, chunks, _adding(staged, blob.digest))
    except (errors.Permanent, errors.Temporary):
        return False  # removed or broken meanwhile: the registry has it
    return True


async def _bring_documents(
    registry: Registry, reference: Reference, digest: str, parsed: image.Image, staged: Import
) -> None:
    for fields in await referrers.find(registry, reference, digest):
        if fields.get("artifactType") not in _KEPT:
            continue
        found = await manifests.find(registry, reference.at(fields["digest"]))
        if found is None or descriptors.mapping(found.document, "subject").get("digest") != digest:
            continue  # an entry that outlived its manifest, or that lies
        own = [blob for blob in descriptors.blobs_of(found.document) if blob.digest not in parsed.blobs]
        for blob in own:
            data = await blobs.read(registry, reference, _small(blob))
            await asyncio.to_thread(staged.add_blob, blob.digest, data)
        await asyncio.to_thread(staged.add_blob, found.digest, found.data)


def _small(blob: Blob) -> Blob:
    if blob.size > oci.MAX_MANIFEST:
        raise errors.Permanent(
            "InvalidImage",
            f"{blob.digest} is a document and must have at most {oci.MAX_MANIFEST} bytes, not {blob.size}",
        )
    return blob


class _Importing:
    """`ModelStore.importing` from the event loop: its ends write and sync, so they run in a thread."""

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
