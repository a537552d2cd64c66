"""The images in a store by their manifests, and the bytes of their layers.

Manifests never change, so each is parsed once; whether its image exists is read from the disk each time.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from serving import errors
from serving.images.documents import layers, oci
from serving.images.documents.image import Image, Layer, hexadecimal, parse, referred
from serving.images.store import seal

_CHUNK = 1024 * 1024


class StoredLayer(NamedTuple):
    """A layer whose blob is reproduced from the files of a tree."""

    tree: Path
    layer: Layer


class Catalog:
    """The images whose trees are below the directory `trees`."""

    def __init__(self, trees: Path) -> None:
        self._trees = trees
        self._parsed: dict[str, Image] = {}
        """Parsed manifests by digest."""
        self._referred: dict[str, frozenset[str]] = {}
        """Digests of the blobs of each referrer, by its digest."""

    def digests(self) -> list[str]:
        """Return the digests of all images, and drop the cached manifests of images that were removed."""
        # The names of seals, beside the trees, have a dot.
        present = sorted(f"sha256:{path.name}" for path in self._trees.iterdir() if "." not in path.name)
        for removed in set(self._parsed).difference(present):
            self._parsed.pop(removed, None)
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
                raise seal.seal_broken(f"{path} is missing") from error
            raise missing(digest) from error
        if oci.digest_of(data) != digest:
            raise seal.seal_broken(f"{path} is not {digest}")
        return data

    def image(self, digest: str) -> Image:
        """Return the parsed manifest of one of the images in `digests`; it may be a cached one.

        Raises:
            errors.Permanent: `ImageMissing`, `SealBroken`.
        """
        parsed = self._parsed.get(digest)
        if parsed is None:
            parsed = self._parsed[digest] = parse(self.manifest(digest))
        return parsed

    def referred(self, digest: str, path: Path) -> frozenset[str]:
        """Return the digests of the config and layers of a referrer, which is stored at `path`.

        A damaged one has none: an image is complete without it, and a pull of the image replaces it.
        """
        if digest not in self._referred:
            document = path.read_bytes()
            if oci.digest_of(document) != digest:
                return frozenset()
            self._referred[digest] = referred(document)
        return self._referred[digest]

    def find(self, layer: str) -> StoredLayer:
        """Return the layer with this digest that the files of a tree reproduce.

        Raises:
            errors.Permanent: `ImageMissing`.
        """
        for digest in self.digests():
            try:
                image = self.image(digest)
            except errors.Permanent:
                continue
            for candidate in image.layers:
                if candidate.digest == layer and candidate.is_reproducible:
                    return StoredLayer(self._trees / hexadecimal(digest), candidate)
        raise missing(layer)


def missing(digest: str) -> errors.Permanent:
    """Return the error for a digest that is not in the store."""
    return errors.Permanent("ImageMissing", f"{digest} is not in the model store")


def file_chunks(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes. A link in its place is not followed; a pipe in its place does not block."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def layer_chunks(tree: Path, layer: Layer) -> Iterator[bytes]:
    """Yield a layer's tar, reproduced from the tree."""
    for header, entry in layers.entries(layer.plan()):
        yield header
        if entry is not None:
            yield from file_chunks(tree / layers.ROOT / entry.path)
            yield layers.padding(entry.size)
    yield layers.TRAILER


def hashed(digest: str, source: Path, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks that were read from `source`, and check their digest.

    Raises:
        errors.Permanent: `SealBroken`, the bytes cannot be read, or (after the last chunk) have another
            digest.
    """
    content_hash = hashlib.sha256()
    try:
        for chunk in chunks:
            content_hash.update(chunk)
            yield chunk
    except OSError as error:
        raise seal.seal_broken(f"{error.filename or source} cannot be read: {error.strerror}") from error
    if f"sha256:{content_hash.hexdigest()}" != digest:
        raise seal.seal_broken(f"{source} no longer has the bytes of {digest}")
