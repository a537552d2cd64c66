"""Keeps model images in the store while they are in use, and removes unused ones.

A version pins its image from its build on. Where Pods mount the images of this store, the pin of a ready
version ends when no object refers to the version but an experiment, whose Pods are those of its Trials; on a
cluster the pin ends after the build. An image without a pin may be evicted if it can be fetched again.
"""

import asyncio
from collections.abc import Iterable

from serving import clock, errors
from serving.controllers.models.image_builder import ImageBuilder, pin_owner
from serving.controllers.models.version_usage import VersionUsage
from serving.images.store import page_cache
from serving.kube import Informer, Key, Kube, Result, VersionReader
from serving.objects import Object, is_deleting
from serving.planning.models import retention
from serving.resources import kinds, names
from serving.settings import Settings

_DIGEST = "digest"


class ImageRetention:
    """One per process."""

    def __init__(
        self, kube: Kube, builder: ImageBuilder, usage: VersionUsage, versions: Informer, settings: Settings
    ) -> None:
        self._kube = kube
        self._cluster = VersionReader(kube)
        self._store = builder.store
        self._builder = builder
        self._usage = usage
        self._versions = versions
        self._release_seconds = settings.controllers.release_seconds
        self._max_bytes = settings.store.max_bytes
        self._warm_share = settings.controllers.warm_share
        self._warm: set[str] = set()
        """Digests of images that have been read into the page cache."""
        versions.index(_DIGEST, _digests)

    async def update_pin(self, version: Object) -> bool:
        """Pin or unpin the image of a ready version; False if Pods need an image that the store lacks.

        Raises:
            errors.ApiError, errors.Unavailable: the nodes have not been read yet.
        """
        digest = version["status"]["digest"]
        if self._usage.is_mounted(Key.of(version)) and await self._is_shared():
            if not await asyncio.to_thread(self._pin, digest, pin_owner(version)):
                return False
            await self.warm(digest)
            return True
        self._warm.discard(digest)
        await self._unpin(version)
        return True

    async def unpin_blocked(self, version: Object) -> None:
        """Unpin the image of a blocked version if nothing will mount it."""
        if not (self._usage.is_mounted(Key.of(version)) and await self._is_shared()):
            await self._unpin(version)

    async def warm(self, digest: str) -> None:
        """Read an image that Pods mount into the page cache, once while it is used.

        Raises:
            errors.ApiError, errors.Unavailable: the nodes have not been read yet.
        """
        if digest not in self._warm and await self._is_shared():
            self._warm.add(digest)
            await asyncio.to_thread(page_cache.warm, self._store.tree(digest), self._warm_share)

    async def _is_shared(self) -> bool:
        """Whether Pods mount the images of this store."""
        return retention.is_store_shared(await self._cluster.read())

    async def _unpin(self, version: Object) -> None:
        """Remove the version's pin; then evict images if the store is beyond its limit."""
        # Until the cache has the version's digest, the deletion of another version with the same digest does
        # not count this version as a sharer (`_sharing`): only the pin keeps the image.
        watched = self._versions.get(*Key.of(version))
        if watched is None or is_deleting(watched) or not _digest(watched):
            return
        digest, owner = _digest(version), pin_owner(version)
        if owner in await asyncio.to_thread(self._store.pins, digest):
            await asyncio.to_thread(self._store.unpin, digest, owner)
            await self.evict()

    def _pin(self, digest: str, owner: str) -> bool:
        """Pin an image; False if the store lacks the image."""
        try:
            self._store.pin(digest, owner)
        except errors.Permanent as error:
            if error.reason != "ImageMissing":
                raise
            return False
        return True

    async def release(self, version: Object) -> Result | None:
        """Release a version that is being deleted, and its image; or report their users.

        The finalizer is removed last: if the process is killed before, all steps are repeated.
        """
        users, shared_with = self._usage.users(Key.of(version)), self._sharing(version, _digest(version))
        pinned_by: set[str] = set()
        if not users:
            await self.discard_attempts(version)
            if digest := _digest(version):
                await asyncio.to_thread(self._store.unpin, digest, pin_owner(version))
                pinned_by = await asyncio.to_thread(self._store.pins, digest)
        match retention.on_deletion(version, users, sorted(pinned_by), shared_with):
            case retention.KeepImage(message):
                await self._report(version, message)
                return Result(self._release_seconds)
            case retention.ReleaseImage(to_remove):
                if to_remove and not await asyncio.to_thread(self._store.remove, to_remove):
                    return Result(self._release_seconds)
        await self._remove_finalizer(version)
        return None

    async def discard_attempts(self, version: Object) -> None:
        """Discard the version's downloads, and images of its builds other than the image in its status."""
        await asyncio.to_thread(self._builder.forget, version)
        for digest in await asyncio.to_thread(self._store.pinned, pin_owner(version)):
            if digest != _digest(version):
                await asyncio.to_thread(self._store.unpin, digest, pin_owner(version))
                if not self._sharing(version, digest):
                    await asyncio.to_thread(self._store.remove, digest)

    async def evict(self) -> list[str]:
        """Evict images that can be fetched again and have no pin, until the store is below its limit.

        The store evicts by itself when an image is pulled. A built image can be fetched again only once it is
        pushed.
        """
        return await asyncio.to_thread(self._store.evict, self._max_bytes)

    def _sharing(self, version: Object, digest: str) -> list[str]:
        """Return the other versions with this digest that need the image: in use, or not being deleted."""
        return [
            str(Key.of(sibling))
            for sibling in self._versions.by_index(_DIGEST, digest)
            if Key.of(sibling) != Key.of(version)
            and (not is_deleting(sibling) or self._usage.is_used(Key.of(sibling)))
        ]

    async def _report(self, version: Object, message: str) -> None:
        if not retention.is_reported(version, message):
            status = retention.kept_status(version, message, clock.rfc3339(clock.now()))
            await self._kube.apply_status(kinds.MODEL_VERSION, version, status)

    async def _remove_finalizer(self, version: Object) -> None:
        """Patch the finalizers if the version is unchanged: other writers may have changed the finalizers."""
        meta = version["metadata"]
        finalizers = meta.get("finalizers") or []
        remaining = [name for name in finalizers if name != names.MODEL_IMAGE_FINALIZER]
        if remaining == finalizers:
            return
        patch = {"metadata": {"finalizers": remaining, "resourceVersion": meta["resourceVersion"]}}
        await self._kube.patch(kinds.MODEL_VERSION, meta["namespace"], meta["name"], patch)


def _digest(version: Object) -> str:
    """Return the image's digest; empty until the status has it."""
    digest: str = (version.get("status") or {}).get("digest", "")
    return digest


def _digests(version: Object) -> Iterable[str]:
    return filter(None, [_digest(version)])
