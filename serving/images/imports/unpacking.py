"""Unpacks a layer while it arrives, to a destination that decides whether the layer's blob is kept too."""

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Protocol, cast

from serving import errors
from serving.images.documents import oci
from serving.images.documents.image import Layer, invalid
from serving.images.imports import tarball
from serving.images.store import disk
from serving.settings import StoreSettings


class Destination(Protocol):
    """Where the files of an image are written."""

    def file_path(self, path: str) -> Path:
        """Return where to write a file of the image; create the parent directory."""

    def kept_blob(self, layer: Layer) -> Path | None:
        """Return where to write a layer's blob; None if it is not kept."""


@dataclass(frozen=True)
class Unpacked:
    """An unpacked layer: the digest of its uncompressed tar, its files, and the path of its blob if that is
    kept.
    """

    diff_id: str
    files: tuple[oci.File, ...]
    blob: Path | None


def most_bytes(layer: Layer, layers: Iterable[Layer], settings: StoreSettings) -> int:
    """Return how many bytes a layer of an image with these layers may unpack to.

    A layer without compression has the size in its descriptor. The compressed layers share
    `unpack_free_bytes`: an image of many tiny layers would get them many times.
    """
    if not layer.compression:
        return layer.size
    compressed = sum(bool(other.compression) for other in layers)
    return max(int(layer.size * settings.unpack_ratio), settings.unpack_free_bytes // compressed)


def least_bytes(layer: Layer, destination: Destination) -> int:
    """Return how many bytes a layer takes at the destination at least: its blob if the blob is kept, and its
    files if the manifest lists them.
    """
    kept = 0 if destination.kept_blob(layer) is None else layer.size
    return kept + sum(file.size for file in layer.files or ())


class FileBudget:
    """Bounds the number of files of all layers of an image, which several threads unpack."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[str] = Counter()
        """Number of files by the digest of their layer."""
        self._lock = threading.Lock()

    def take(self, layer: str) -> None:
        """Take one file for a layer.

        Raises:
            errors.Permanent: `InvalidImage`, the image has more files.
        """
        with self._lock:
            if self._taken.total() == self._most:
                raise invalid(f"the image has more than {self._most} files")
            self._taken[layer] += 1

    def give_back(self, layer: str) -> None:
        """Return the files of a layer that was not unpacked."""
        with self._lock:
            self._taken.pop(layer, None)


def unpack(
    layer: Layer, destination: Destination, chunks: Iterable[bytes], most: int, budget: FileBudget
) -> Unpacked:
    """Write the layer's files below `models/` to the destination; after an error none of them remains.

    Args:
        layer: the layer, as the manifest describes it.
        destination: gets the files.
        chunks: the layer's blob, which is verified.
        most: bytes that the layer may unpack to, from `most_bytes`.
        budget: bounds the number of files of the image.

    Raises:
        errors.Permanent: `InvalidImage`; the message names the member and the rule, or the bound of the
            unpacked size.
        errors.Temporary: `DigestMismatch`, `DiskFull`.
    """
    created: list[Path] = []  # by `_create`, to be removed after an error
    is_complete = False
    try:
        with disk.full_disk_mapped(), ExitStack() as opened:
            blob_path = destination.kept_blob(layer)
            blob = None if blob_path is None else opened.enter_context(_create(blob_path, created))
            stream = _stream(chunks, blob)
            diff_id, files = _read(layer, destination, stream, created, most=most, budget=budget)
            if blob is not None:
                os.fsync(blob.fileno())
        is_complete = True
    finally:
        if not is_complete:
            for path in created:
                path.unlink(missing_ok=True)
            budget.give_back(layer.digest)
    return Unpacked(diff_id, files, blob_path)


def _stream(chunks: Iterable[bytes], blob: BinaryIO | None) -> tarball.LayerStream:
    return tarball.LayerStream(chunks, None if blob is None else lambda data: disk.write_all(blob, data))


def _create(path: Path, created: list[Path]) -> BinaryIO:
    """Open a new file for writing, and add its path to `created`."""
    file = path.open("xb", buffering=0)
    created.append(path)
    return file


def _read(
    layer: Layer,
    destination: Destination,
    stream: tarball.LayerStream,
    created: list[Path],
    *,
    most: int,
    budget: FileBudget,
) -> tuple[str, tuple[oci.File, ...]]:
    """Write the files of a layer, and verify the layer; return (diff ID, files)."""
    decompressed = tarball.decompressed(stream, layer.compression)
    bounded = tarball.BoundedStream(decompressed, layer.digest, most)
    tar = tarball.TarReader(cast("IO[bytes]", bounded))
    try:
        files = tuple(_write(tar, member, destination, created) for member in _limited(tar, layer, budget))
        _check_description(layer, tar, files)
    except errors.Permanent as error:
        if error.reason == "InvalidImage":
            # Bytes that were damaged on the way look invalid too; DigestMismatch makes the caller try again.
            stream.drain()
            _check_digest(layer, stream)
        raise
    stream.drain()
    _check_digest(layer, stream)
    return tar.diff_id, files


def _limited(tar: tarball.TarReader, layer: Layer, budget: FileBudget) -> Iterable[tarball.TarMember]:
    """Yield the files of a tar, each taken from the budget."""
    for member in tar.members():
        budget.take(layer.digest)
        yield member


def _write(
    tar: tarball.TarReader, member: tarball.TarMember, destination: Destination, created: list[Path]
) -> oci.File:
    """Write the content of the latest member of the tar to a new file."""
    try:
        file = _create(destination.file_path(member.path), created)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise invalid(
            f"{member.path!r}: the image has this path twice, or a file where it needs a directory"
        ) from error
    digest = hashlib.sha256()
    with file:
        for chunk in tar.data(member.size):
            digest.update(chunk)
            disk.write_all(file, chunk)
        os.fsync(file.fileno())
    return oci.File(member.path, f"sha256:{digest.hexdigest()}", member.size)


def _check_description(layer: Layer, tar: tarball.TarReader, files: tuple[oci.File, ...]) -> None:
    """Refuse a layer whose annotation lists other files, or whose tar the listed files do not reproduce."""
    if layer.files is None:
        return
    if files != layer.files:
        differing_files = {*files} ^ {*layer.files}
        differing = min({file.path for file in differing_files}, default="their order")
        raise invalid(f"layer {layer.digest}: {differing!r} differs from the annotation {oci.FILES}")
    if layer.is_reproducible and tar.frame != tarball.frame(layer.plan()):
        raise invalid(f"layer {layer.digest}: is not the tar that its annotation {oci.FILES} describes")


def _check_digest(layer: Layer, stream: tarball.LayerStream) -> None:
    if stream.digest != layer.digest or stream.size != layer.size:
        raise errors.Temporary(
            "DigestMismatch",
            f"layer: must be {layer.digest} ({layer.size} bytes), got {stream.digest} ({stream.size} bytes)",
            retry_after=1.0,
        )
