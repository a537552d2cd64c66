"""The model store: unpacked, sealed images, each file once, pushed and pulled with the same bytes.

`contents` has the layout. All state is on disk: any process may be killed at any time.
"""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from serving import errors
from serving.images.documents import image, oci
from serving.images.imports.image_import import Import
from serving.images.store import catalog, disk, seal
from serving.images.store.contents import StoreContents
from serving.images.store.staging import Staging
from serving.resources.formats import file_list
from serving.settings import StoreSettings


class StoredReferrer(NamedTuple):
    """A document that refers to an image: ModelPack, lineage or signatures."""

    descriptor: dict[str, Any]
    document: bytes


class ModelStore:
    """A store at `root`, created if missing. Any number of processes and threads may use it at once."""

    def __init__(self, root: Path, settings: StoreSettings | None = None) -> None:
        self.root = root
        self._settings = settings or StoreSettings()
        with disk.full_disk_mapped():
            self._contents = StoreContents(root)
        self._records = self._contents.records
        self._catalog = self._contents.catalog

    def tree(self, digest: str) -> Path:
        """Return the directory of an unpacked image: `manifest.json`, `files.json` and `models/`."""
        return self._contents.tree(digest)

    def has(self, digest: str) -> bool:
        """Whether the image is in the store."""
        return self.tree(digest).is_dir()

    def images(self) -> list[str]:
        """Return the digests of all images of the store."""
        return self._catalog.digests()

    def verify(self, digest: str, *, deep: bool = False) -> tuple[oci.File, ...]:
        """Return the image's files, after checking its manifest and that nothing has changed since insertion.

        Args:
            digest: of the manifest.
            deep: also read and hash all bytes, those of the image's blobs included.

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
        return self._catalog.find(digest).layer.size

    def read_blob(self, digest: str) -> Iterator[bytes]:
        """Yield any blob of a stored image in chunks of at most 1 MiB; a layer is reproduced from the tree.

        Raises:
            errors.Permanent: `ImageMissing`, at once; `SealBroken`, the bytes cannot be read, or (after the
                last chunk) have another digest.
        """
        path = self._path(digest)
        if path is not None:
            return catalog.hashed(digest, path, catalog.file_chunks(path))
        stored = self._catalog.find(digest)
        return catalog.hashed(digest, stored.tree, catalog.layer_chunks(stored.tree, stored.layer))

    def referrers(self, digest: str) -> list[StoredReferrer]:
        """Return the stored documents that refer to an image, with their descriptors; no damaged ones."""
        documents = []
        for name in self._records.referrers(digest):
            with suppress(FileNotFoundError):
                document = self._contents.blob(name).read_bytes()
                if oci.digest_of(document) == name:
                    documents.append(document)
        return [
            StoredReferrer(oci.referrer(json.loads(document), document), document) for document in documents
        ]

    def repositories(self, digest: str) -> set[str]:
        """Return the names under which an image was built, by its lineage documents; '' for a missing one."""
        return {
            self._repository(blob)
            for referrer in self.referrers(digest)
            if referrer.descriptor.get("artifactType") == oci.LINEAGE_TYPE
            for blob in image.referred(referrer.document)
        }

    def _repository(self, blob: str) -> str:
        """Return the repository that a blob of a lineage document names, '' if it names none.

        The blobs of a document that came from a registry can be anything, layers of gigabytes too.
        """
        path = self._contents.blob(blob)
        try:
            lineage = json.loads(path.read_bytes()) if path.stat().st_size <= oci.MAX_MANIFEST else {}
        except (FileNotFoundError, ValueError, RecursionError):
            return ""
        return str(lineage.get("repository", "")) if isinstance(lineage, dict) else ""

    @contextmanager
    def importing(self, manifest: bytes, *, origin: str | None = None) -> Iterator[Import]:
        """Yield an import, whose image is in the store after the block, but not after an error.

        Args:
            manifest: the image manifest, byte for byte.
            origin: reference at which the image can be pulled again.

        Raises:
            errors.Permanent: `InvalidImage`.
            errors.Temporary: `DiskFull`, also before the block if the disk has no room for the layers.
        """
        with self.staging() as staging:
            image_import = Import(manifest, staging, self._settings)
            image_import.require_room()
            yield image_import
            self.commit(staging, image_import.digest, image_import.finish(), origin=origin)

    @contextmanager
    def staging(self) -> Iterator[Staging]:
        """Yield a staging area, removed at the end; `commit` moves its content into the store.

        Raises:
            errors.Temporary: `DiskFull`; nothing became visible.
        """
        with disk.full_disk_mapped(), self._contents.private() as path:
            yield Staging(path)

    def commit(
        self, staging: Staging, digest: str, files: Collection[oci.File], *, origin: str | None = None
    ) -> None:
        """Make a staged image visible: its blobs, referrers, then its tree. An intact tree of
        the image in the store is kept.

        Args:
            staging: has the blobs (the manifest too) and the tree, of which only `models/` is complete.
            digest: of the manifest.
            files: all of the tree.
            origin: reference at which the image can be pulled again.
        """
        staging.blobs.pop(digest).rename(staging.tree / seal.MANIFEST)
        disk.write_synced(staging.tree / file_list.NAME, seal.listing(files))
        disk.freeze(staging.tree)
        changed = self._contents.changed_blobs(staging)
        with self._contents.locked():
            self._contents.put_blobs(staging, digest, changed)
            if origin is not None:
                self._records.set_origin(digest, origin)
            self._contents.put_tree(staging, digest, files)
            self._records.record_use(digest)
        self._evict(self._settings.max_bytes, keep=digest)

    def pin(self, digest: str, owner: str, *, synced: bool = True) -> None:
        """Keep the image for a user until `unpin`, across restarts; it counts as used now.

        Args:
            digest: of the manifest.
            owner: the Pod or ModelVersion that needs the image.
            synced: whether the pin survives a loss of power too. Syncing waits for everything that is being
                written.

        Raises:
            errors.Permanent: `ImageMissing`, `InvalidOwner`.
        """
        with disk.full_disk_mapped(), self._present(digest):
            self._records.pin(digest, owner, synced=synced)

    def unpin(self, digest: str, owner: str) -> None:
        """Remove a pin, if it exists. The image counts as used until now."""
        with self._contents.locked():
            self._records.unpin(digest, owner)

    def pins(self, digest: str) -> set[str]:
        """Return the owners that pin the image."""
        return self._records.pins(digest)

    def pinned(self, owner: str) -> list[str]:
        """Return the digests of the images that the owner pins, of missing ones too (see `repair`)."""
        return self._records.pinned(owner)

    def owners(self) -> set[str]:
        """Return the owners that pin any image."""
        return self._records.owners()

    def set_origin(self, digest: str, reference: str) -> None:
        """Record where the image can be pulled again (`registry.example/models/digits@sha256:...`).

        Raises:
            errors.Permanent: `ImageMissing`.
        """
        with disk.full_disk_mapped(), self._present(digest):
            self._records.set_origin(digest, reference)

    def origin(self, digest: str) -> str | None:
        """Return the reference at which the image can be pulled again, if any."""
        return self._records.origin(digest)

    def remove(self, digest: str) -> bool:
        """Remove an image and the blobs that only it needs; return False if it is pinned."""
        with self._contents.locked():
            if self._records.pins(digest):
                return False
            trash = self._contents.take_out(digest)
        disk.remove_tree(trash)
        return True

    def repair(self, digest: str) -> str | None:
        """Repair a broken image from its own bytes, or remove it so that it can be pulled again.

        Its pins are kept, and with a pin its origin. If all bytes are present, as in a restored backup with
        new inodes and times, the image is hashed and inserted again.

        Returns:
            None if the image is intact or was repaired; else its origin.

        Raises:
            errors.Permanent: `ImageMissing`; `SealBroken`, the image lacks bytes and has no origin, and
                remains as it is.
            errors.Temporary: `DiskFull`; the image remains as it is.
        """
        try:
            self.verify(digest, deep=True)
        except errors.Permanent as error:
            if error.reason != "SealBroken":
                raise
            if self._reinsert(digest):
                return None
            if (origin := self.origin(digest)) is None:
                raise
        else:
            return None
        with self._contents.locked():
            trash = self._contents.take_out(digest)
        disk.remove_tree(trash)
        return origin

    def _reinsert(self, digest: str) -> bool:
        """Insert an image again from its own bytes; return False if they are not complete.

        Raises:
            errors.Temporary: `DiskFull`: they may be complete.
        """
        try:
            manifest = self.read_manifest(digest)
            parsed = image.parse(manifest)
            with self.importing(manifest) as image_import:
                for layer in parsed.layers:
                    image_import.add_layer(layer.digest, self.read_blob(layer.digest))
                config = parsed.config.digest
                image_import.add_blob(config, b"".join(self.read_blob(config)))
        except (errors.Permanent, errors.Temporary) as error:
            if error.reason == "DiskFull":
                raise
            return False
        return True

    def size(self) -> int:
        """Return the bytes of all trees and blobs."""
        return sum(disk.size(self.tree(digest)) for digest in self.images()) + disk.size(self._contents.blobs)

    def evict(self, limit_bytes: int) -> list[str]:
        """Remove the least recently used images until the store has at most `limit_bytes`; return them.

        Images with a pin or without an origin stay, even if the store then stays larger.
        """
        return self._evict(limit_bytes, keep=None)

    def _evict(self, limit_bytes: int, keep: str | None) -> list[str]:
        sizes = {digest: disk.size(self.tree(digest)) for digest in self.images()}
        total = sum(sizes.values())
        removed: list[str] = []
        for digest in sorted(sizes, key=self._records.last_use):
            if total + disk.size(self._contents.blobs) <= limit_bytes:
                break
            if digest != keep and self.origin(digest) is not None and self.remove(digest):
                total -= sizes[digest]
                removed.append(digest)
        return removed

    def _path(self, digest: str) -> Path | None:
        """Return the path of a blob; None if only a tree can reproduce it, or the store lacks it."""
        # The digest can also be that of an image, whose manifest is in its tree.
        candidates = (self._contents.blob(digest), self.tree(digest) / seal.MANIFEST)
        return next((path for path in candidates if path.is_file()), None)

    @contextmanager
    def _present(self, digest: str) -> Iterator[None]:
        """Hold the store's lock while the block uses an image that must exist."""
        with self._contents.locked():
            if not self.has(digest):
                raise catalog.missing(digest)
            yield


class CountedStore(ModelStore):
    """A store that calls `on_read` with the number of bytes of each chunk that a push has read.

    The call may come from any thread.
    """

    def __init__(self, root: Path, on_read: Callable[[int], None]) -> None:
        super().__init__(root)
        self._on_read = on_read

    def read_blob(self, digest: str) -> Iterator[bytes]:
        """Yield a blob in chunks, and report each when it was used."""
        for chunk in super().read_blob(digest):
            yield chunk
            self._on_read(len(chunk))
