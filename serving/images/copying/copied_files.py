"""A copy of a model's files in a volume of a Pod: a destination of `unpacking.unpack`.

The volume looks like an image volume of the model: `models/`, and beside it `files.json`, the list of the
files, which is written last: the copy was complete at that moment. After an attempt that was killed, the
next attempt keeps the layers whose files all have their digests.
"""

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from serving.images.documents import layers
from serving.images.documents.image import Layer
from serving.images.documents.oci import File
from serving.images.store import disk
from serving.resources.formats import file_list
from serving.system.files import atomic_file


class CopiedFiles:
    """The files in the volume at `root`."""

    def __init__(self, root: Path) -> None:
        """Create the directory of the files if it is missing."""
        self.root = root
        self._models = root / layers.ROOT
        self._list = root / file_list.NAME
        self._models.mkdir(exist_ok=True)

    def file_path(self, path: str) -> Path:
        """Return where to write a file of the image; create the parent directory."""
        target = self._models / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def kept_blob(self, layer: Layer) -> None:
        """Return None, so that `unpack` writes no blob: the volume has room for the files alone."""

    def is_complete(self, files_digest: str) -> bool:
        """Whether the volume has the list with this digest, and exactly the files of that list, undamaged."""
        if not self._list.is_file():
            return False
        document = self._list.read_bytes()
        if file_list.digest_of(document) != files_digest:
            return False
        expected = file_list.parse(document)
        return self._paths() == expected.keys() and all(
            self._has_digest(path, digest) for path, digest in expected.items()
        )

    def has(self, files: Collection[File]) -> bool:
        """Whether the volume has all of these files, with their sizes and digests."""
        # Sizes first: they need no reading, and an attempt that was killed mostly lacks bytes.
        return all(self._size(file.path) == file.size for file in files) and all(
            self._has_digest(file.path, file.digest) for file in files
        )

    def keep_only(self, files: Iterable[File]) -> None:
        """Remove the list, and all files but these, as an attempt that was killed may leave half a file."""
        self._list.unlink(missing_ok=True)
        for path in self._paths() - {file.path for file in files}:
            (self._models / path).unlink()

    def finish(self, document: bytes) -> None:
        """Write the list of the files (the bytes of `files.json`), which marks the copy as complete."""
        for directory, _, _ in os.walk(self._models):
            atomic_file.sync_directory(Path(directory))
        disk.replace(self._list, document, self.root)

    def _paths(self) -> set[str]:
        """Return the paths of the present files, relative to `models/`."""
        return set(disk.stat_tree(self._models))

    def _size(self, path: str) -> int:
        """Return the bytes of a file; -1 if there is none."""
        target = self._models / path
        return target.stat().st_size if target.is_file() else -1

    def _has_digest(self, path: str, digest: str) -> bool:
        return disk.file_digest(self._models / path) == digest
