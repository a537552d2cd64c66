"""What becomes of images that are made: pinned while an Inference wants them, removed when nothing needs them.

A ready version's pin begins with its build, stays while anything refers to the version, and is taken off when nothing
does: then the image may be evicted, if it can be fetched again.
"""

import asyncio
from collections.abc import Iterable

from serving import clock, errors
from serving.controllers.image_builder import Maker, owner
from serving.controllers.version_usage import Usage
from serving.images.store import page_cache
from serving.kube import Informer, Key, Kube, Result
from serving.objects import Object
from serving.planning.models import release
from serving.resources import kinds, names
from serving.settings import Settings

_DIGEST = "digest"


class Keeper:
    """One per process."""

    def __init__(
        self, kube: Kube, maker: Maker, usage: Usage, versions: Informer, settings: Settings
    ) -> None:
        self._kube = kube
        self._store = maker.store
        self._maker = maker
        self._usage = usage
        self._versions = versions
        self._release_seconds = settings.controllers.release_seconds
        self._max_bytes = settings.store.max_bytes
        self._warm_share = settings.controllers.warm_share
        self._warm: set[str] = set()
        versions.index(_DIGEST, _digests)

    async def is_kept(self, version: Object) -> bool:
        """Pin or unpin the image of a ready version; False if it is needed and has to be fetched first."""
        digest = version["status"]["digest"]
        if self._usage.is_used(Key.of(version)):
            if not await asyncio.to_thread(self._pinned, digest, owner(version)):
                return False
            await self.warm(digest)
            return True
        self._warm.discard(digest)
        # Until the watch has shown it as ready, others of its digest do not know that they share the image.
        seen = self._versions.get(*Key.of(version))
        if seen is not None and release.is_ready(seen):
            await asyncio.to_thread(self._store.unpin, digest, owner(version))
        return True

    async def warm(self, digest: str) -> None:
        """Bring an image into the page cache, once as long as it is used."""
        if digest not in self._warm:
            self._warm.add(digest)
            await asyncio.to_thread(page_cache.warm, self._store.tree(digest), self._warm_share)

    def _pinned(self, digest: str, who: str) -> bool:
        try:
            self._store.pin(digest, who)
        except errors.Permanent as error:
            if error.reason != "ImageMissing":
                raise
            return False
        return True

    async def release(self, version: Object) -> Result | None:
        """Let go of a version that is being deleted, and of its image; or say who keeps it.

        The finalizer goes last: killed before that, all of it is done again.
        """
        users, others = self._usage.of(Key.of(version)), self._sharing(version, _digest(version))
        pinned: set[str] = set()
        if not users:
            await self.abandon(version)
            if digest := _digest(version):
                await asyncio.to_thread(self._store.unpin, digest, owner(version))
                pinned = await asyncio.to_thread(self._store.pins, digest)
        match release.release(version, users, sorted(pinned), others):
            case release.Await(message):
                await self._say(version, message)
                return Result(self._release_seconds)
            case release.Release(to_remove):
                if to_remove and not await asyncio.to_thread(self._store.remove, to_remove):
                    return Result(self._release_seconds)
        await self._let_go(version)
        return None

    async def abandon(self, version: Object) -> None:
        """Let go of what tries have left of which the status says nothing: downloads, and images that were not pushed."""
        await asyncio.to_thread(self._maker.forget, version)
        for digest in await asyncio.to_thread(self._held, owner(version)):
            if digest != _digest(version):
                await asyncio.to_thread(self._store.unpin, digest, owner(version))
                if not self._sharing(version, digest):
                    await asyncio.to_thread(self._store.remove, digest)

    def _held(self, who: str) -> list[str]:
        return [digest for digest in self._store.images() if who in self._store.pins(digest)]

    async def evict(self) -> list[str]:
        """Bring the store below its bound, as far as images can be fetched again and nobody has pinned them.

        The store does so itself when an image comes in; one that was built can be fetched again only when it is pushed.
        """
        return await asyncio.to_thread(self._store.evict, self._max_bytes)

    def _sharing(self, version: Object, digest: str) -> list[str]:
        """Others of a digest that will stay; one that is going, and that nobody uses, may be gone already."""
        return [
            str(Key.of(other))
            for other in self._versions.by_index(_DIGEST, digest)
            if Key.of(other) != Key.of(version)
            and ("deletionTimestamp" not in other["metadata"] or self._usage.is_used(Key.of(other)))
        ]

    async def _say(self, version: Object, message: str) -> None:
        if not release.is_said(version, message):
            status = release.awaiting(version, message, clock.rfc3339(clock.now()))
            await self._kube.apply_status(kinds.MODEL_VERSION, version, status)

    async def _let_go(self, version: Object) -> None:
        """Compare and swap: somebody else may hold finalizers too."""
        meta = version["metadata"]
        left = [name for name in meta.get("finalizers") or [] if name != names.MODEL_IMAGE_FINALIZER]
        if left == (meta.get("finalizers") or []):
            return
        patch = {"metadata": {"finalizers": left, "resourceVersion": meta["resourceVersion"]}}
        await self._kube.patch(kinds.MODEL_VERSION, meta["namespace"], meta["name"], patch)


def _digest(version: Object) -> str:
    """Return what was made; empty where the status does not say so yet."""
    digest: str = (version.get("status") or {}).get("digest", "")
    return digest


def _digests(version: Object) -> Iterable[str]:
    return filter(None, [_digest(version)])
