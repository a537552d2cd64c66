"""The store's records of an image besides its bytes: users, origin and referrers.

    images/<hex>/pins/<owner>      an empty file per owner, its name percent-encoded
    images/<hex>/origin            a reference
    images/<hex>/used              its mtime is the time of the last use
    images/<hex>/referrers/<hex>   an empty file per document that refers to the image

Writers hold the store's lock.
"""

import os
from pathlib import Path
from urllib.parse import quote, unquote

from serving import errors
from serving.images.documents.image import hexadecimal
from serving.images.store import disk
from serving.system import atomic_file

_MAX_NAME = 255


class ImageRecords:
    """The directory `images` of a store; `tmp` is on the same file system."""

    def __init__(self, root: Path, tmp: Path) -> None:
        self.root = root
        self._tmp = tmp

    def of(self, digest: str) -> Path:
        """Return the directory of an image's records."""
        return self.root / hexadecimal(digest)

    def pin(self, digest: str, owner: str, *, synced: bool) -> None:
        """Record a user of the image; `synced`: the record survives a power cut."""
        name = _encoded(owner)
        self._add(self.of(digest) / "pins", name, synced=synced)
        self.used(digest)

    def unpin(self, digest: str, owner: str) -> None:
        """Remove a user of the image."""
        path = self.of(digest) / "pins" / _encoded(owner)
        if path.exists():
            path.unlink()
            atomic_file.sync_directory(path.parent)
            self.used(digest)

    def pins(self, digest: str) -> set[str]:
        """Return the users of the image."""
        return {unquote(name) for name in _names(self.of(digest) / "pins")}

    def owners(self) -> set[str]:
        """Return the users of all images."""
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

    def used(self, digest: str) -> None:
        """Record a use at this time."""
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
        """Record that a document refers to the image."""
        self._add(self.of(digest) / "referrers", hexadecimal(document), synced=True)

    def referrers(self, digest: str) -> list[str]:
        """Return the digests of the documents that refer to the image."""
        return [f"sha256:{name}" for name in sorted(_names(self.of(digest) / "referrers"))]

    def _add(self, directory: Path, name: str, *, synced: bool) -> None:
        if (directory / name).exists():
            return
        directory.mkdir(parents=True, exist_ok=True)
        os.close(os.open(directory / name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
        for parent in (directory, directory.parent, self.root) if synced else ():
            atomic_file.sync_directory(parent)


def _names(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _encoded(owner: str) -> str:
    name = quote(owner, safe="")
    if not owner or owner in {".", ".."} or len(name) > _MAX_NAME:
        raise errors.Permanent(
            "InvalidOwner", f"owner: must be 1 to {_MAX_NAME} bytes, percent-encoded, got {owner!r}"
        )
    return name
