"""Image volumes: trees of the model store, pinned while a Pod uses them, and pulled where missing.

An image is pinned before it is read, and its seal is verified before it is mounted. Concurrent pulls of an
image from one place are one pull, which is cancelled when no Pod waits for it any longer. As with a cluster's
pull policy IfNotPresent, namespaces share pulled images, but not those that were only built here, even if a
Pod knows the digest.
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from serving import clock, errors
from serving.embedded.pod_spec import volume_mounts
from serving.images.registry import Credentials, Reference, Registry, pull
from serving.images.store.model_store import ModelStore
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.names import LOCAL_REGISTRY
from serving.settings import RegistrySettings
from serving.system import threads

log = logging.getLogger(__name__)

OWNER_PREFIX = "pod/"
"""Prefix of the pin owners that are Pods; the Pod's uid follows."""
DOCKER_CONFIG_KEY = ".dockerconfigjson"
"""Key of a Secret of type kubernetes.io/dockerconfigjson."""


@dataclass(frozen=True)
class MountedImage:
    """An image whose tree may be mounted."""

    digest: str
    path: str
    """Of its sealed tree."""
    fetch: float
    """Seconds of its fetch; 0 where the store had the image."""
    verify: float
    """Seconds of pinning it and of verifying its seal."""


class _MissingImage(NamedTuple):
    """An image that the store does not have, or not for this Pod, and that has to be fetched."""

    origin: str | None = None
    """The registry reference that it was once fetched from, where that is known."""


@dataclass
class _Fetch:
    """A pull, and the number of Pods that wait for it."""

    pull: asyncio.Task[str]
    waiting: int = 0


class ImageVolumes:
    """The image volumes of this node's Pods; one instance per agent."""

    def __init__(self, kube: Kube, store: ModelStore, settings: RegistrySettings) -> None:
        self._kube = kube
        self._store = store
        self._settings = settings
        self._fetching: dict[tuple[str, str], _Fetch] = {}
        """By source and digest: a slow registry keeps no Pod waiting that names the image at another one."""

    async def mount(self, pod: Object, volume: Object) -> MountedImage:
        """Pin an image for the Pod, fetch it where it is missing, verify its seal, and return its tree.

        Raises:
            errors.Temporary: `ErrImagePull` or `ErrImageNeverPull`.
        """
        reference = volume["image"]["reference"]
        digest = volume_mounts.digest_of(reference)
        assert digest is not None  # by `volume_mounts.volume_refusals`
        owner = OWNER_PREFIX + pod["metadata"]["uid"]
        begun = clock.monotonic()
        try:
            missing = await threads.run_to_end(self._take_own, pod, reference, digest, owner)
        except (errors.Permanent, errors.Temporary) as error:
            raise errors.Temporary("ErrImagePull", f"{reference}: {error}") from error
        checked = clock.monotonic()
        if missing is None:
            return MountedImage(digest, str(self._store.tree(digest)), fetch=0.0, verify=checked - begun)
        source = missing.origin or (None if volume_mounts.is_local(reference) else reference)
        if source is None:
            message = f"{reference}: not in this machine's model store ({LOCAL_REGISTRY})"
            raise errors.Temporary("ErrImagePull", message)
        if volume["image"].get("pullPolicy") == "Never":
            raise errors.Temporary("ErrImageNeverPull", f"{reference}: not here, and pullPolicy is Never")
        await self._fetch(pod, digest, source)
        fetched = clock.monotonic()
        try:
            missing = await threads.run_to_end(self._take, digest, owner)
        except (errors.Permanent, errors.Temporary) as error:
            raise errors.Temporary("ErrImagePull", f"{reference}: {error}") from error
        if missing is not None:
            raise errors.Temporary("ErrImagePull", f"{reference}: it was fetched, and is missing again")
        return MountedImage(
            digest,
            str(self._store.tree(digest)),
            fetch=fetched - checked,
            verify=(checked - begun) + (clock.monotonic() - fetched),
        )

    def _take_own(self, pod: Object, reference: str, digest: str, owner: str) -> _MissingImage | None:
        """Take an image that the Pod's namespace has built, or that came from a registry.

        Any other image is missing for this Pod, even if the store has it.

        Raises:
            errors.Permanent, errors.Temporary: as `_take`.
        """
        if volume_mounts.is_local(reference):
            prefix = f"{LOCAL_REGISTRY}/{pod['metadata']['namespace']}/"
            if not any(name.startswith(prefix) for name in self._store.repositories(digest)):
                return _MissingImage()
        elif self._store.origin(digest) is None:
            return _MissingImage()
        return self._take(digest, owner)

    def _take(self, digest: str, owner: str) -> _MissingImage | None:
        """Pin and verify an image; return None if it is valid.

        Raises:
            errors.Permanent: the image is damaged, and cannot be fetched again.
            errors.Temporary: the disk has no room to pin or repair it.
        """
        try:
            # Unsynced: a power failure ends the replicas too, and each pins again before it mounts.
            self._store.pin(digest, owner, synced=False)
            self._store.verify(digest)
        except errors.Permanent as error:
            if error.reason == "ImageMissing":
                return _MissingImage(self._store.origin(digest))
            if error.reason != "SealBroken":
                raise
            log.warning("%s: %s; it is repaired, or fetched again", digest, error)
            origin = self._store.repair(digest)
            return None if origin is None else _MissingImage(origin)
        return None

    async def _fetch(self, pod: Object, digest: str, source: str) -> None:
        """Pull an image into the store, or wait for a pull of it from the same reference."""
        credentials = await self._credentials(pod)
        key = (source, digest)
        fetch = self._fetching.get(key)
        if fetch is None:
            fetch = self._fetching[key] = _Fetch(asyncio.create_task(self._pull(credentials, source)))
        fetch.waiting += 1
        try:
            await asyncio.shield(fetch.pull)
        except (errors.Permanent, errors.Temporary) as error:
            raise errors.Temporary("ErrImagePull", f"{source}: {error.reason}: {error}") from error
        finally:
            fetch.waiting -= 1
            if not fetch.waiting:
                del self._fetching[key]
                fetch.pull.cancel()

    async def _pull(self, credentials: Credentials, source: str) -> str:
        async with Registry(credentials, self._settings) as registry:
            return await pull(registry, self._store, Reference.parse(source))

    async def _credentials(self, pod: Object) -> Credentials:
        """Return the credentials of the Pod's first existing imagePullSecret, or this user's for Docker."""
        for reference in pod["spec"].get("imagePullSecrets") or []:
            name = reference.get("name", "")
            try:
                secret = await self._kube.get(kinds.SECRET, pod["metadata"]["namespace"], name)
            except errors.NotFound:
                continue
            data = (secret.get("data") or {}).get(DOCKER_CONFIG_KEY)
            if data is None:
                raise errors.Temporary(
                    "ErrImagePull", f"Secret {name}: must have the key {DOCKER_CONFIG_KEY}"
                )
            try:
                return Credentials.from_secret(base64.b64decode(data), name)
            except errors.Permanent as error:
                raise errors.Temporary("ErrImagePull", str(error)) from error
        return Credentials.from_docker(helper_seconds=self._settings.helper_seconds)

    async def release(self, uid: str) -> None:
        """Remove all pins of a Pod."""
        await asyncio.to_thread(self._release, [OWNER_PREFIX + uid])

    async def release_others(self, known: Callable[[], Collection[str]]) -> None:
        """Remove the pins of Pods whose uids are not in `known()`.

        `known` is called after the pins are listed, so that a Pod that pins meanwhile keeps its pins.
        """
        owners = await asyncio.to_thread(self._store.owners)
        kept = {OWNER_PREFIX + uid for uid in known()}
        released = [owner for owner in owners - kept if owner.startswith(OWNER_PREFIX)]
        await asyncio.to_thread(self._release, released)

    def _release(self, owners: Sequence[str]) -> None:
        for owner in owners:
            for digest in self._store.pinned(owner):
                self._store.unpin(digest, owner)
