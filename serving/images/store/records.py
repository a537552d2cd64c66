"""What the store knows of an image besides its bytes: who uses it, where it can be had again, what refers to
it.

    images/<hex>/pins/<owner>      an empty file per owner, its name percent-encoded
    images/<hex>/origin            a reference
    images/<hex>/used              its mtime is the last use
    images/<hex>/referrers/<hex>   an empty file per document that refers to the image

Who writes holds the store's lock.
"""

import os
from pathlib import Path
from urllib.parse import quote, unquote

from serving import errors
from serving.images.documents.image import hexadecimal
from serving.images.store import disk
from serving.system import atomic_file

_MAX_NAME = 255


class Records:
    """The directory `images` of a store; `tmp` is on the same disk."""

    def __init__(self, root: Path, tmp: Path) -> None:
        self.root = root
        self._tmp = tmp

    def of(self, digest: str) -> Path:
        """Where the image's records lie."""
        return self.root / hexadecimal(digest)

    def pin(self, digest: str, owner: str, *, synced: bool) -> None:
        """Record a user of the image; `synced`: even a loss of power does not forget it."""
        name = _encoded(owner)
        self._add(self.of(digest) / "pins", name, synced=synced)
        self.used(digest)

    def unpin(self, digest: str, owner: str) -> None:
        """Forget a user of the image."""
        path = self.of(digest) / "pins" / _encoded(owner)
        if path.exists():
            path.unlink()
            atomic_file.sync_directory(path.parent)
            self.used(digest)

    def pins(self, digest: str) -> set[str]:
        """Return who uses the image."""
        return {unquote(name) for name in _names(self.of(digest) / "pins")}

    def owners(self) -> set[str]:
        """Return everyone who uses an image."""
        return {unquote(name) for image in _names(self.root) for name in _names(self.root / image / "pins")}

    def set_origin(self, digest: str, reference: str) -> None:
        """Record where the image can be fetched again."""
        self.of(digest).mkdir(parents=True, exist_ok=True)
        disk.replace(self.of(digest) / "origin", reference.encode(), self._tmp)

    def origin(self, digest: str) -> str | None:
        """Return where the image can be fetched again."""
        try:
            return (self.of(digest) / "origin").read_text()
        except FileNotFoundError:
            return None

    def used(self, digest: str) -> None:
        """Record a use, now."""
        directory = self.of(digest)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "used").touch()

    def last_use(self, digest: str) -> float:
        """Return the last use in seconds since the epoch, 0 where none was recorded."""
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
        for made in (directory, directory.parent, self.root) if synced else ():
            atomic_file.sync_directory(made)


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
