"""The volume of a Pod that gets a copy of a model's files. It knows no registry.

The volume looks like an image volume of the model: `models/`, and beside it the list of the files, which is
written last. So a volume with the list is complete, and one without it keeps its right files for the next
attempt.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from serving.images.documents import layers
from serving.images.documents.image import Layer
from serving.images.documents.oci import File
from serving.images.store import disk
from serving.resources.formats import file_list
from serving.system import atomic_file


class CopiedFiles:
    """The files in the volume at `root`."""

    def __init__(self, root: Path) -> None:
        """Create the directory of the files if it is missing."""
        self.root = root
        self._models = root / layers.ROOT
        self._list = root / file_list.NAME
        self._models.mkdir(exist_ok=True)

    def file_path(self, path: str) -> Path:
        """Return the path of a file of the image, in a directory that exists."""
        target = self._models / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def kept_blob(self, layer: Layer) -> None:
        """Keep no blob: the volume has room for the files alone."""

    def is_complete(self, files_digest: str) -> bool:
        """Whether an earlier attempt has finished, and every byte has its digest still."""
        if not self._list.is_file():
            return False
        document = self._list.read_bytes()
        if file_list.digest_of(document) != files_digest:
            return False
        expected = file_list.parse(document)
        return self._paths() == expected.keys() and all(map(self._is_right, expected, expected.values()))

    def has(self, files: Iterable[File]) -> bool:
        """Whether an earlier attempt has written all of these files."""
        return all(self._size(file.path) == file.size for file in files) and all(
            self._is_right(file.path, file.digest) for file in files
        )

    def keep_only(self, files: Iterable[File]) -> None:
        """Remove all other files: those of an attempt that was killed while it wrote them."""
        self._list.unlink(missing_ok=True)
        for path in self._paths() - {file.path for file in files}:
            (self._models / path).unlink()

    def finish(self, document: bytes) -> None:
        """Write the list of the files, which makes the copy complete."""
        for directory, _, _ in os.walk(self._models):
            atomic_file.sync_directory(Path(directory))
        disk.replace(self._list, document, self.root)

    def _paths(self) -> set[str]:
        return set(disk.stat_tree(self._models))

    def _size(self, path: str) -> int:
        target = self._models / path
        return target.stat().st_size if target.is_file() else -1

    def _is_right(self, path: str, digest: str) -> bool:
        return disk.file_digest(self._models / path) == digest
