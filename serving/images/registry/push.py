"""Pushes a stored image to a registry: the blobs that the registry lacks, the manifests, and the tag last.

A push that was killed leaves blobs and untagged manifests for the registry's garbage collection; a tag never
names an incomplete image. A repeated push skips the blobs that the registry has.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from serving import errors
from serving.images.documents import image, oci
from serving.images.documents.image import Blob
from serving.images.documents.signing import PrivateKey
from serving.images.registry import (
    blobs,
    descriptors,
    manifests,
    referrers,
    responses,
    signatures,
    transfers,
    uploads,
)
from serving.images.registry.client import Registry
from serving.images.registry.reference import Reference
from serving.images.store.model_store import ModelStore

MODELPACK_SUFFIX = "-modelpack"
"""Suffix of the ModelPack manifest's tag: programs that read ModelPack follow neither an index nor a
subject."""


@dataclass
class Pushed:
    """Result of a push; bytes of blobs (layers, configs and small documents), not of manifests."""

    digest: str
    image: str
    """`HOST/REPOSITORY@DIGEST`."""
    bytes_uploaded: int = 0
    bytes_mounted: int = 0
    bytes_skipped: int = 0


async def push(
    registry: Registry,
    store: ModelStore,
    digest: str,
    reference: Reference,
    *,
    mount_from: Sequence[str] = (),
    signing_key: PrivateKey | None = None,
) -> Pushed:
    """Push an image of the store with its ModelPack manifest and other referrers.

    Args:
        registry: the client.
        store: has the image.
        digest: of the image's manifest.
        reference: of the repository; a tag, if given, names the image, and `<tag>-modelpack` the ModelPack
            manifest.
        mount_from: repositories of the same registry (without host) that may have some of the blobs.
        signing_key: signs the image before it is tagged.

    Raises:
        errors.Permanent: `ImageMissing`, `InvalidReference`, `Unauthorized`, `RegistryRefused`.
        errors.Temporary: `RegistryUnavailable`, `DigestMismatch`; those of `referrers.add`.
    """
    _check_reference(reference, digest)
    data = await asyncio.to_thread(store.read_manifest, digest)
    documents = await asyncio.to_thread(lambda: list(store.referrers(digest)))
    work = _Push(registry, store, reference, mount_from, Pushed(digest, str(reference.at(digest))))
    await transfers.in_parallel(
        registry.settings.parallel, work.push_blob, _blobs_of(data, [document for _, document in documents])
    )
    await manifests.put(registry, reference.at(digest), data)
    for _, document in documents:
        await referrers.add(registry, reference, digest, document)
    if signing_key is not None:
        await signatures.attach(registry, reference, digest, signing_key)
    if reference.tag:
        for descriptor, document in documents:
            if descriptor.get("artifactType") == oci.MODELPACK_TYPE:
                await manifests.put(registry, reference.tagged(reference.tag + MODELPACK_SUFFIX), document)
        await manifests.put(registry, reference.tagged(reference.tag), data)
    return work.pushed


def _check_reference(reference: Reference, digest: str) -> None:
    """Refuse the digest of another image, and a tag that is too long for `MODELPACK_SUFFIX`."""
    if reference.digest and reference.digest != digest:
        raise errors.Permanent(
            "InvalidReference",
            f"image reference '{reference}': names another digest than that of the image, {digest}",
        )
    if reference.tag:
        Reference.parse(str(reference.tagged(reference.tag + MODELPACK_SUFFIX)))


def _blobs_of(manifest: bytes, documents: Sequence[bytes]) -> list[Blob]:
    """Return each blob once, the largest first, so that the last transfer is a short one."""
    parsed = image.parse(manifest)
    sizes = {layer.digest: layer.size for layer in parsed.layers}
    sizes[parsed.config.digest] = parsed.config.size
    for data in documents:
        sizes |= {blob.digest: blob.size for blob in descriptors.blobs_of(responses.json_object(data))}
    return [
        Blob(digest, size) for digest, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    ]


class _Push:
    def __init__(
        self,
        registry: Registry,
        store: ModelStore,
        target: Reference,
        mount_from: Sequence[str],
        pushed: Pushed,
    ) -> None:
        self._registry = registry
        self._store = store
        self._target = target
        self._sources = [name for name in mount_from if name != target.repository]
        self.pushed = pushed

    async def push_blob(self, blob: Blob) -> None:
        if await blobs.exists(self._registry, self._target, blob.digest, push=True):
            self.pushed.bytes_skipped += blob.size
            return
        mounted, begun = await self._mount(blob)
        if mounted:
            self.pushed.bytes_mounted += blob.size
            return
        await uploads.upload(
            self._registry, self._target, blob, lambda: self._store.read_blob(blob.digest), begun
        )
        self.pushed.bytes_uploaded += blob.size

    async def _mount(self, blob: Blob) -> tuple[bool, blobs.BegunUpload | None]:
        """Return whether the blob was mounted, and the upload that the registry has begun instead, if any."""
        for source in self._sources:
            try:
                if await blobs.exists(self._registry, self._target.sibling(source), blob.digest):
                    begun = await blobs.mount(self._registry, self._target, blob.digest, source)
                    return begun is None, begun
            except errors.Permanent:
                continue  # an unreadable repository, or a registry without mounts: the blob is uploaded
        return False, None
