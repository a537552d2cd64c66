"""A stored image into a registry: only what the registry lacks, the tag last.

Killed at any moment, a push leaves blobs and untagged manifests, which the registry collects; a tag never
names an image that is not whole. Again is cheap: what is there is skipped.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from yarl import URL

from serving import errors
from serving.images.documents import image, oci
from serving.images.documents.image import Blob
from serving.images.documents.signing import PrivateKey
from serving.images.registry import (
    blobs,
    descriptors,
    manifests,
    parallel,
    referrers,
    responses,
    signatures,
    uploads,
)
from serving.images.registry.client import Registry
from serving.images.registry.reference import Reference
from serving.images.store.model_store import ModelStore

MODELPACK_SUFFIX = "-modelpack"
"""Tag of the ModelPack manifest: its readers follow neither an index nor a subject."""


@dataclass
class Pushed:
    """What a push did; bytes are those of blobs (layers, configs and small documents), not of manifests."""

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
    """Push an image of the store, its ModelPack manifest and what refers to it.

    Args:
        registry: the client.
        store: has the image.
        digest: of the image's manifest.
        reference: where to; with a tag it names the image, and `<tag>-modelpack` the ModelPack manifest.
        mount_from: repositories of the same registry (without host) that may have some of the blobs.
        signing_key: signs the image, before a tag names it.

    Raises:
        errors.Permanent: `ImageMissing`, `InvalidReference`, `Unauthorized`, `RegistryRefused`.
        errors.Temporary: `RegistryUnavailable`, `DigestMismatch`.
    """
    _check(reference, digest)
    data = await asyncio.to_thread(store.read_manifest, digest)
    about = await asyncio.to_thread(lambda: list(store.referrers(digest)))
    work = _Push(registry, store, reference, mount_from, Pushed(digest, str(reference.at(digest))))
    await parallel.run(registry.settings.parallel, work.blob, _blobs_of(data, [found for _, found in about]))
    await manifests.put(registry, reference.at(digest), data)
    for _, found in about:
        await referrers.add(registry, reference, digest, found)
    if signing_key is not None:
        await signatures.attach(registry, reference, digest, signing_key)
    if reference.tag:
        for fields, found in about:
            if fields.get("artifactType") == oci.MODELPACK_TYPE:
                await manifests.put(registry, reference.tagged(reference.tag + MODELPACK_SUFFIX), found)
        await manifests.put(registry, reference.tagged(reference.tag), data)
    return work.pushed


def _check(reference: Reference, digest: str) -> None:
    if reference.digest and reference.digest != digest:
        raise errors.Permanent(
            "InvalidReference",
            f"image reference '{reference}': names another digest than {digest}, which is pushed",
        )
    if reference.tag:
        Reference.parse(str(reference.tagged(reference.tag + MODELPACK_SUFFIX)))


def _blobs_of(manifest: bytes, about: Sequence[bytes]) -> list[Blob]:
    """Return every blob once, the largest first: the last to finish should be a small one."""
    parsed = image.parse(manifest)
    found = {layer.digest: layer.size for layer in parsed.layers}
    found[parsed.config.digest] = parsed.config.size
    for data in about:
        found |= {blob.digest: blob.size for blob in descriptors.blobs_of(responses.json_object(data))}
    return [
        Blob(digest, size) for digest, size in sorted(found.items(), key=lambda item: (-item[1], item[0]))
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

    async def blob(self, blob: Blob) -> None:
        if await blobs.exists(self._registry, self._target, blob.digest, push=True):
            self.pushed.bytes_skipped += blob.size
            return
        mounted, session = await self._mount(blob)
        if mounted:
            self.pushed.bytes_mounted += blob.size
            return
        await uploads.upload(
            self._registry, self._target, blob, lambda: self._store.read_blob(blob.digest), session
        )
        self.pushed.bytes_uploaded += blob.size

    async def _mount(self, blob: Blob) -> tuple[bool, URL | None]:
        """Return whether a repository gave the blob, and else the upload that was begun in its place, if any."""
        for source in self._sources:
            try:
                if await blobs.exists(self._registry, self._target.sibling(source), blob.digest):
                    session = await blobs.mount(self._registry, self._target, blob.digest, source)
                    return session is None, session
            except errors.Permanent:
                continue  # a repository that we may not read, or a registry without mounts, costs an upload
        return False, None
