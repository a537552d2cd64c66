"""Which image of the store has which blob, and a layer's bytes from the files of a tree.

Manifests never change, so each is read once while its image is there; whether it is, the disk is asked each
time.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from serving import errors
from serving.images.documents import layers, oci
from serving.images.documents.image import Image, Layer, hexadecimal, parse, referred
from serving.images.store import seal

_CHUNK = 1024 * 1024


class Catalog:
    """The trees below a directory."""

    def __init__(self, trees: Path) -> None:
        self._trees = trees
        self._read: dict[str, Image] = {}
        self._referred: dict[str, frozenset[str]] = {}

    def digests(self) -> list[str]:
        """Return the images that are there; what was read of others is forgotten."""
        present = sorted(f"sha256:{path.name}" for path in self._trees.iterdir() if "." not in path.name)
        for gone in set(self._read).difference(present):
            self._read.pop(gone, None)
        return present

    def manifest(self, digest: str) -> bytes:
        """Return an image's manifest.

        Raises:
            errors.Permanent: `ImageMissing`, `SealBroken`.
        """
        path = self._trees / hexadecimal(digest) / seal.MANIFEST
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            if path.parent.is_dir():
                raise seal.broken(f"{path} is missing") from error
            raise missing(digest) from error
        if oci.digest_of(data) != digest:
            raise seal.broken(f"{path} is not {digest}")
        return data

    def image(self, digest: str) -> Image:
        """Return what the image's manifest says.

        Raises:
            errors.Permanent: `ImageMissing`, `SealBroken`.
        """
        found = self._read.get(digest)
        if found is None:
            found = self._read[digest] = parse(self.manifest(digest))
        return found

    def referred(self, digest: str, path: Path) -> frozenset[str]:
        """Return the blobs that a document names, a blob of this digest at this path."""
        if digest not in self._referred:
            self._referred[digest] = referred(path.read_bytes())
        return self._referred[digest]

    def find(self, layer: str) -> tuple[Path, Layer]:
        """Return a tree that has the files of a layer that follows from them.

        Raises:
            errors.Permanent: `ImageMissing`.
        """
        for digest in self.digests():
            try:
                image = self.image(digest)
            except errors.Permanent:
                continue
            for found in image.layers:
                if found.digest == layer and found.is_reproducible:
                    return self._trees / hexadecimal(digest), found
        raise missing(layer)


def missing(digest: str) -> errors.Permanent:
    """Return the error for what is not in the store."""
    return errors.Permanent("ImageMissing", f"{digest} is not in the model store")


def file_chunks(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes; a link in its place is not followed, and a pipe not waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def layer_chunks(tree: Path, layer: Layer) -> Iterator[bytes]:
    """Yield a layer's tar, made from the tree."""
    for header, entry in layers.entries(layer.plan()):
        yield header
        if entry is not None:
            yield from file_chunks(tree / layers.ROOT / entry.path)
            yield layers.padding(entry.size)
    yield layers.TRAILER


def hashed(digest: str, what: Path, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Pass chunks on.

    Raises:
        errors.Permanent: `SealBroken`, at the end: they do not have the digest.
    """
    found = hashlib.sha256()
    try:
        for chunk in chunks:
            found.update(chunk)
            yield chunk
    except OSError as error:
        raise seal.broken(f"{error.filename or what} cannot be read: {error.strerror}") from error
    if f"sha256:{found.hexdigest()}" != digest:
        raise seal.broken(f"{what} does not give {digest} any more")
