"""The store's records of an image besides its bytes: pins, origin, last use and referrers.

    images/<hex>/pins/<owner>      an empty file per owner, its name percent-encoded
    images/<hex>/origin            the reference at which the image can be pulled again
    images/<hex>/used              its mtime is the time of the last use
    images/<hex>/referrers/<hex>   an empty file per document (lineage, signature) about the image

An owner of pins is a Pod or a ModelVersion. Callers hold the store's lock while they write.
"""

import os
from pathlib import Path
from urllib.parse import quote, unquote

from serving import errors
from serving.images.documents.image import hexadecimal
from serving.images.store import disk
from serving.system.files import atomic_file

_MAX_NAME = 255
"""Bytes of the longest file name (NAME_MAX)."""


class ImageRecords:
    """The records in the directory `images` of a store."""

    def __init__(self, root: Path, tmp: Path) -> None:
        """Args: root: `images`; tmp: on the same file system, for files that are renamed into `images`."""
        self.root = root
        self._tmp = tmp

    def of(self, digest: str) -> Path:
        """Return the directory of an image's records."""
        return self.root / hexadecimal(digest)

    def pin(self, digest: str, owner: str, *, synced: bool) -> None:
        """Record that an owner pins the image; `synced`: the record survives a power cut."""
        name = _encoded(owner)
        self._add(self.of(digest) / "pins", name, synced=synced)
        self.record_use(digest)

    def unpin(self, digest: str, owner: str) -> None:
        """Remove the owner's pin of the image, if there is one."""
        path = self.of(digest) / "pins" / _encoded(owner)
        if path.exists():
            path.unlink()
            atomic_file.sync_directory(path.parent)
            self.record_use(digest)

    def pins(self, digest: str) -> set[str]:
        """Return the owners of the image's pins."""
        return {unquote(name) for name in _names(self.of(digest) / "pins")}

    def pinned(self, owner: str) -> list[str]:
        """Return the digests of the images that the owner pins."""
        name = _encoded(owner)
        return [
            f"sha256:{image}" for image in _names(self.root) if (self.root / image / "pins" / name).exists()
        ]

    def owners(self) -> set[str]:
        """Return the owners of the pins of all images."""
        return {unquote(name) for image in _names(self.root) for name in _names(self.root / image / "pins")}

    def set_origin(self, digest: str, reference: str) -> None:
        """Record the reference at which the image can be pulled again."""
        self.of(digest).mkdir(parents=True, exist_ok=True)
        disk.replace(self.of(digest) / "origin", reference.encode(), self._tmp)

    def origin(self, digest: str) -> str | None:
        """Return the reference at which the image can be pulled again, if any."""
        try:
            return (self.of(digest) / "origin").read_text()
        except FileNotFoundError:
            return None

    def record_use(self, digest: str) -> None:
        """Record that the image is used now."""
        directory = self.of(digest)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "used").touch()

    def last_use(self, digest: str) -> float:
        """Return the time of the last use in Unix seconds, 0 if there is no record."""
        try:
            return (self.of(digest) / "used").stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def refer(self, digest: str, document: str) -> None:
        """Record that the document with the digest `document` refers to the image."""
        self._add(self.of(digest) / "referrers", hexadecimal(document), synced=True)

    def referrers(self, digest: str) -> list[str]:
        """Return the digests of the documents that refer to the image."""
        return [f"sha256:{name}" for name in sorted(_names(self.of(digest) / "referrers"))]

    def _add(self, directory: Path, name: str, *, synced: bool) -> None:
        """Create an empty file, if it does not exist."""
        if (directory / name).exists():
            return
        directory.mkdir(parents=True, exist_ok=True)
        os.close(os.open(directory / name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
        for parent in (directory, directory.parent, self.root) if synced else ():
            atomic_file.sync_directory(parent)


def _names(directory: Path) -> list[str]:
    """Return the names of a directory's entries; none if there is no such directory."""
    try:
        return [path.name for path in directory.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _encoded(owner: str) -> str:
    """Return the file name of an owner.

    Raises:
        errors.Permanent: the owner is empty, `.`, `..` or too long.
    """
    name = quote(owner, safe="")
    if not owner or owner in {".", ".."} or len(name) > _MAX_NAME:
        raise errors.Permanent(
            "InvalidOwner", f"owner: must be 1 to {_MAX_NAME} bytes, percent-encoded, got {owner!r}"
        )
    return name
