"""The model store: unpacked, sealed images, each file once, that are pushed and pulled by the same bytes.

`contents` says what lies where. Everything that stays after a call is on disk: any process may be killed at
any time.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from serving import errors
from serving.images.documents import image, oci
from serving.images.imports.image_import import Import
from serving.images.store import catalog, disk, seal
from serving.images.store.contents import Contents
from serving.images.store.staging import Staging
from serving.settings import StoreSettings


class ModelStore:
    """A store at `root`, made where it does not exist. Any number of processes and threads may use it at
    once.
    """

    def __init__(self, root: Path, settings: StoreSettings | None = None) -> None:
        self.root = root
        self._settings = settings or StoreSettings()
        with disk.disk_full():
            self._contents = Contents(root)
        self._records = self._contents.records
        self._catalog = self._contents.catalog

    def tree(self, digest: str) -> Path:
        """Where the unpacked image with this manifest digest lies: `manifest.json` and `models/`."""
        return self._contents.tree(digest)

    def has(self, digest: str) -> bool:
        """Whether the image is in the store, whole."""
        return self.tree(digest).is_dir()

    def images(self) -> list[str]:
        """Return the digests of all images of the store."""
        return self._catalog.digests()

    def verify(self, digest: str, *, deep: bool = False) -> tuple[oci.File, ...]:
        """Return the image's files after checking its manifest and that nothing was touched since insertion.

        Args:
            digest: of the manifest.
            deep: read and hash every byte too, the image's blobs included.

        Raises:
            errors.Permanent: `ImageMissing`, `SealBroken` (the message names the file).
        """
        return self._contents.verify(digest, deep=deep)

    def read_manifest(self, digest: str) -> bytes:
        """Return an image's manifest.

        Raises:
            errors.Permanent: `ImageMissing`, `SealBroken`.
        """
        return self._catalog.manifest(digest)

    def blob_size(self, digest: str) -> int:
        """Return the size in bytes of any blob of a stored image.

        Raises:
            errors.Permanent: `ImageMissing`.
        """
        with suppress(FileNotFoundError):
            if (path := self._path(digest)) is not None:
                return path.stat().st_size
        return self._catalog.find(digest)[1].size

    def read_blob(self, digest: str) -> Iterator[bytes]:
        """Yield any blob of a stored image in chunks of at most 1 MiB; a layer is made from the tree.

        Raises:
            errors.Permanent: `ImageMissing`, at once; `SealBroken`, after the last chunk: the bytes are not
                those.
        """
        path = self._path(digest)
        if path is not None:
            return catalog.hashed(digest, path, catalog.file_chunks(path))
        tree, layer = self._catalog.find(digest)
        return catalog.hashed(digest, tree, catalog.layer_chunks(tree, layer))

    def referrers(self, digest: str) -> list[tuple[dict[str, Any], bytes]]:
        """Return the stored documents that refer to an image (ModelPack, lineage, signatures) with their
        descriptors.
        """
        documents = []
        for name in self._records.referrers(digest):
            with suppress(FileNotFoundError):
                documents.append(self._contents.blob(name).read_bytes())
        return [(oci.referrer(json.loads(document), document), document) for document in documents]

    @contextmanager
    def importing(self, manifest: bytes, *, origin: str | None = None) -> Iterator[Import]:
        """Give what a pull fills; at its clean end the image is in the store, at any other nothing is.

        Args:
            manifest: the image manifest, byte for byte.
            origin: where the image can be fetched again.

        Raises:
            errors.Permanent: `InvalidImage`.
            errors.Temporary: `DiskFull`.
        """
        with self.staging() as staging:
            found = Import(manifest, staging)
            yield found
            self.commit(staging, found.digest, found.finish(), origin=origin)

    @contextmanager
    def staging(self) -> Iterator[Staging]:
        """Give what is to become an image, removed at the end unless it was committed.

        Raises:
            errors.Temporary: `DiskFull`; nothing has become visible.
        """
        with disk.disk_full(), self._contents.private() as path:
            yield Staging(path)

    def commit(
        self, staging: Staging, digest: str, digests: Mapping[str, str], *, origin: str | None = None
    ) -> None:
        """Make a staged image visible: its blobs, what refers to it, then its tree. Again is a no-op.

        Args:
            staging: has the blobs (the manifest too) and the tree without `manifest.json`.
            digest: of the manifest.
            digests: of each file of the tree, by path relative to `models/`.
            origin: where the image can be fetched again.
        """
        staging.blobs.pop(digest).rename(staging.tree / seal.MANIFEST)
        disk.freeze(staging.tree)
        changed = self._contents.changed_blobs(staging)
        with self._contents.locked():
            self._contents.put_blobs(staging, digest, changed)
            if origin is not None:
                self._records.set_origin(digest, origin)
            self._contents.put_tree(staging, digest, digests)
            self._records.used(digest)
        self._evict(self._settings.max_bytes, keep=digest)

    def pin(self, digest: str, owner: str, *, synced: bool = True) -> None:
        """Keep the image for a user of it until `unpin`, over restarts; it counts as used now.

        Args:
            digest: of the manifest.
            owner: who uses it.
            synced: whether a loss of power may not forget it either. Syncing waits for everything that is
                being written.

        Raises:
            errors.Permanent: `ImageMissing`, `InvalidOwner`.
        """
        with disk.disk_full(), self._present(digest):
            self._records.pin(digest, owner, synced=synced)

    def unpin(self, digest: str, owner: str) -> None:
        """Take a pin off; one that is not there is no error. The image counts as used until now."""
        with self._contents.locked():
            self._records.unpin(digest, owner)

    def pins(self, digest: str) -> set[str]:
        """Return who keeps the image."""
        return self._records.pins(digest)

    def owners(self) -> set[str]:
        """Return everyone who keeps an image."""
        return self._records.owners()

    def set_origin(self, digest: str, reference: str) -> None:
        """Record where the same digest can be fetched again (`registry.example/models/digits@sha256:...`).

        Raises:
            errors.Permanent: `ImageMissing`.
        """
        with disk.disk_full(), self._present(digest):
            self._records.set_origin(digest, reference)

    def origin(self, digest: str) -> str | None:
        """Return where the same digest can be fetched again."""
        return self._records.origin(digest)

    def remove(self, digest: str) -> bool:
        """Remove an image and what nothing else uses; False while it is pinned, True where it is gone
        afterwards.
        """
        with self._contents.locked():
            if self._records.pins(digest):
                return False
            trash = self._contents.take_out(digest)
        disk.remove_tree(trash)
        return True

    def repair(self, digest: str) -> str | None:
        """Make a broken image sound again from its own bytes, or take it out so that it can be fetched again.

        Its pins and its origin stay. Where every byte is there, as in a restored backup whose inodes and
        times are new, it is inserted anew: all of it is hashed, as at every insertion.

        Returns:
            None where the image is sound, or was made so; else its origin.

        Raises:
            errors.Permanent: `ImageMissing`; `SealBroken`, neither helps: nothing was done.
        """
        try:
            self.verify(digest, deep=True)
        except errors.Permanent as error:
            if error.reason != "SealBroken":
                raise
            if self._inserted_anew(digest):
                return None
            if (origin := self.origin(digest)) is None:
                raise
        else:
            return None
        with self._contents.locked():
            trash = self._contents.take_out(digest)
        disk.remove_tree(trash)
        return origin

    def _inserted_anew(self, digest: str) -> bool:
        try:
            manifest = self.read_manifest(digest)
            found = image.parse(manifest)
            with self.importing(manifest) as again:
                for layer in found.layers:
                    again.add_layer(layer.digest, self.read_blob(layer.digest))
                again.add_blob(found.config.digest, b"".join(self.read_blob(found.config.digest)))
        except (errors.Permanent, errors.Temporary):
            return False
        return True

    def size(self) -> int:
        """Return the bytes of all trees and blobs."""
        return sum(disk.size(self.tree(digest)) for digest in self.images()) + disk.size(self._contents.blobs)

    def evict(self, limit_bytes: int) -> list[str]:
        """Remove images until the store has at most so many bytes, the least recently used first; returns
        them.

        Only what has an origin and no pin goes; the store stays larger where that is not enough.
        """
        return self._evict(limit_bytes, keep=None)

    def _evict(self, limit_bytes: int, keep: str | None) -> list[str]:
        sizes = {digest: disk.size(self.tree(digest)) for digest in self.images()}
        left = sum(sizes.values())
        removed: list[str] = []
        for digest in sorted(sizes, key=self._records.last_use):
            if left + disk.size(self._contents.blobs) <= limit_bytes:
                break
            if digest != keep and self.origin(digest) is not None and self.remove(digest):
                left -= sizes[digest]
                removed.append(digest)
        return removed

    def _path(self, digest: str) -> Path | None:
        """Where a blob lies as a file, None where it is made."""
        candidates = (self._contents.blob(digest), self.tree(digest) / seal.MANIFEST)
        return next((path for path in candidates if path.is_file()), None)

    @contextmanager
    def _present(self, digest: str) -> Iterator[None]:
        with self._contents.locked():
            if not self.has(digest):
                raise catalog.missing(digest)
            yield


class CountedStore(ModelStore):
    """A store that reports the size of each chunk of a blob to `on_read`, from any thread: the progress of a
    push.
    """

    def __init__(self, root: Path, on_read: Callable[[int], None]) -> None:
        super().__init__(root)
        self._on_read = on_read

    def read_blob(self, digest: str) -> Iterator[bytes]:
        """Yield a blob in chunks, and report each when it was used."""
        for chunk in super().read_blob(digest):
            yield chunk
            self._on_read(len(chunk))
