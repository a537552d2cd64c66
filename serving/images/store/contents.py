"""The directories of a store: their layout, insertion, removal, and cleanup after a kill.

    trees/<manifest hex>/          mounted by replicas: manifest.json, files.json, models/...; 0444 and 0555
    trees/<manifest hex>.seal.json inode, size, mtime, ctime and digest of every file but files.json
    blobs/sha256/<hex>             configs, referrers, and layers that the files do not reproduce
    images/<manifest hex>/         pins, origin and referrers (`records`)
    tmp/<random>/                  insertions and removals in progress; locked by the writer

The blob of a layer that we build is not kept: `layers` reproduces it from the tree. Everything becomes
visible by one rename of something complete and synced, the tree last, and disappears by one. A writer that is
killed leaves a directory below `tmp` and items that no tree needs; the next process that opens the store
removes both.
"""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from serving import errors
from serving.images.documents import image, oci
from serving.images.documents.image import hexadecimal
from serving.images.store import disk, seal
from serving.images.store.catalog import Catalog
from serving.images.store.records import ImageRecords
from serving.images.store.staging import Staging
from serving.resources.formats import file_list
from serving.system.files import atomic_file, locks, renames


class StoreContents:
    """The directories of a store at `root`, created if missing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs = root / "blobs" / "sha256"
        self._trees = root / "trees"
        self._tmp = root / "tmp"
        self.records = ImageRecords(root / "images", self._tmp)
        self.catalog = Catalog(self._trees)
        for directory in (self.blobs, self._trees, self._tmp, self.records.root):
            directory.mkdir(parents=True, exist_ok=True)
        with self.locked():
            self._sweep()
            self.collect()
            self._list_files()

    def tree(self, digest: str) -> Path:
        """Return the path of an image's tree."""
        return self._trees / hexadecimal(digest)

    def seal(self, digest: str) -> Path:
        """Return the path of an image's seal."""
        return self._trees / f"{hexadecimal(digest)}.seal.json"

    def blob(self, digest: str) -> Path:
        """Return the path of a kept blob."""
        return self.blobs / hexadecimal(digest)

    def verify(self, digest: str, *, deep: bool) -> tuple[oci.File, ...]:
        """Return the image's files, sorted: see `ModelStore.verify`."""
        parsed = image.parse(self.catalog.manifest(digest))
        sealed = seal.read(self.seal(digest))
        files = seal.check(self.tree(digest), digest, parsed, sealed, deep=deep)
        if deep:
            for blob in sorted(parsed.kept):
                if not self.blob(blob).is_file() or disk.file_digest(self.blob(blob)) != blob:
                    raise seal.seal_broken(f"{self.blob(blob)} is missing or does not have its digest")
        return files

    def changed_blobs(self, staging: Staging) -> set[str]:
        """Return the digests of staged blobs whose files in the store have other bytes.

        Hashes the store's files without the lock, as that takes long. `put_blobs` inserts a blob that is
        removed meanwhile like a new one.
        """
        changed = set()
        for blob in staging.blobs:
            with contextlib.suppress(FileNotFoundError):
                if disk.file_digest(self.blob(blob)) != blob:
                    changed.add(blob)
        return changed

    def put_blobs(self, staging: Staging, digest: str, changed: Collection[str]) -> None:
        """Move staged blobs in, and record which of them refer to the image. Needs the lock.

        Args:
            staging: has the blobs.
            digest: of the image.
            changed: blobs that replace broken ones of the store, from `changed_blobs`.
        """
        for blob, path in staging.blobs.items():
            path.chmod(0o444)
            if blob in changed or not self.blob(blob).exists():
                path.rename(self.blob(blob))
        atomic_file.sync_directory(self.blobs)
        for document, subject in staging.documents.items():
            if subject == digest:
                self.records.refer(digest, document)

    def put_tree(self, staging: Staging, digest: str, files: Iterable[oci.File]) -> None:
        """Move a finished tree in, unless the store has an intact one. Needs the lock.

        A broken tree remains until the new one is in its place: it may have the only copy of the bytes.
        """
        tree = self.tree(digest)
        is_broken = tree.exists()
        if is_broken:
            with contextlib.suppress(errors.Permanent):
                self.verify(digest, deep=False)
                return
        # The seal is first, as the disk can be full; a broken tree does not match the new one either.
        disk.replace(self.seal(digest), seal.encode(digest, staging.tree, files), self._tmp)
        if is_broken:
            _replace_directory(staging.tree, tree, staging.path / "broken")
        else:
            _move_directory(staging.tree, tree)
        tree.chmod(0o555)
        atomic_file.sync_directory(self._trees)

    def take_out(self, digest: str) -> Path:
        """Move a tree out, and remove the files that only it needed; return the directory to delete. Needs
        the lock.

        Creates no directory first: that would fail on a full disk, which could then never be freed.
        """
        trash = self._tmp / f"removed-{secrets.token_hex(8)}"
        if self.tree(digest).is_dir():
            _move_directory(self.tree(digest), trash)
            atomic_file.sync_directory(self._trees)
        self.collect()
        return trash

    def collect(self) -> None:
        """Remove the files that belong to no tree, after removals and killed insertions. Needs the lock."""
        present = set(self.catalog.digests())
        for path in self._trees.glob("*.seal.json"):
            if f"sha256:{path.name.partition('.')[0]}" not in present:
                path.unlink()
        for record in self.records.root.iterdir():
            digest = f"sha256:{record.name}"
            # `ModelStore.repair` removes the tree of a broken image that users pin: the pins remain, as it is
            # pulled again.
            if digest not in present and not self.records.pins(digest):
                disk.remove_tree(record)
        try:
            needed = {blob for digest in present for blob in self._needed(digest)}
        except errors.Permanent:
            return  # an image with an unreadable manifest may need any blob
        for blob in self.blobs.iterdir():
            if f"sha256:{blob.name}" not in needed:
                blob.unlink()

    def _needed(self, digest: str) -> Iterator[str]:
        """Yield the digests of an image's blobs, of its referrers, and of the blobs of the referrers."""
        yield from self.catalog.image(digest).blobs
        for name in self.records.referrers(digest):
            yield name
            if self.blob(name).exists():
                yield from self.catalog.referred(name, self.blob(name))

    def _list_files(self) -> None:
        """Add `files.json` to the trees of earlier releases, and where it was removed. Needs the lock."""
        for digest in self.catalog.digests():
            tree = self.tree(digest)
            if os.path.lexists(tree / file_list.NAME):
                continue
            # Neither a broken seal nor a full disk keeps a store from being opened; `verify` names the file.
            with contextlib.suppress(errors.Permanent, OSError):
                document = seal.listing(seal.files_of(seal.read(self.seal(digest))))
                tree.chmod(0o755)
                try:
                    disk.replace(tree / file_list.NAME, document, self._tmp)
                finally:
                    tree.chmod(0o555)

    def _sweep(self) -> None:
        """Remove the directories below `tmp` whose writer was killed: nobody holds their lock."""
        for path in self._tmp.iterdir():
            try:
                fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except NotADirectoryError:
                path.unlink(missing_ok=True)
                continue
            except FileNotFoundError:  # its writer has removed it, without the lock
                continue
            try:
                if locks.try_lock_descriptor(fd):
                    disk.remove_tree(path)
            finally:
                os.close(fd)

    @contextmanager
    def private(self) -> Iterator[Path]:
        """Yield a private directory, removed at the end; after a kill, when the store is next opened."""
        with self.locked():
            path = Path(tempfile.mkdtemp(dir=self._tmp))
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            locks.lock_descriptor(fd)
        try:
            yield path
        finally:
            disk.remove_tree(path)
            os.close(fd)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the store's lock, against other threads too. Not reentrant."""
        fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            locks.lock_descriptor(fd)
            yield
        finally:
            os.close(fd)


def _move_directory(path: Path, target: Path) -> None:
    # A directory must be writable for its own rename (its `..` changes), whoever owns its parent.
    path.chmod(0o755)
    path.rename(target)


def _replace_directory(path: Path, target: Path, trash: Path) -> None:
    """Move a directory to `target`, whose present one is then at `path` or at `trash`."""
    for directory in (path, target):
        directory.chmod(0o755)
    # Without an exchange, a kill between the two renames loses both directories: `_sweep` removes them.
    if not renames.exchange(path, target):
        target.rename(trash)
        path.rename(target)
