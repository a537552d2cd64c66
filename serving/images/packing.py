"""Each file is read once: into the tree, into its own hash, and into its layer's.

Two hashes of each byte are what a build costs; they run on a thread each (hashlib releases the lock) while this one
reads and writes. Memory is a few buffers, whatever the files' size.
"""

import hashlib
import mmap
import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import zstandard

from serving.images import disk, layers, oci, source
from serving.images.staging import Staging

_CHUNK = 4 * 1024 * 1024
"""Bytes read at a time. Larger chunks were not faster; an anonymous map is aligned as direct writes need it."""
_BUFFERS = 4
"""Chunks alive at once: one being read or written while the threads work on others."""
_ALONE = 256 * 1024
"""A file up to this size is hashed where it is read: handing it to a thread costs as much."""
_ZSTD_LEVEL = 3
"""Fixed, as is one thread: both change the bytes. Higher levels gain little on weights."""


class Tar:
    """A layer on its way: hashes what goes into it."""

    compression = ""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._size = 0

    def update(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the tar."""
        self._hash.update(data)
        self._size += len(data)

    def finish(self, files: tuple[oci.File, ...]) -> oci.BuiltLayer:
        """Return the layer, all of whose bytes were taken."""
        digest = f"sha256:{self._hash.hexdigest()}"
        return oci.BuiltLayer(digest, self._size, files, digest)


class Compressed(Tar):
    """A layer whose blob is kept: another version of the library may compress differently."""

    compression = "zstd"

    def __init__(self, staging: Staging, path: Path, file: BinaryIO) -> None:
        super().__init__()
        self._staging = staging
        self._path = path
        self._file = file
        self._compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
        self._blob = hashlib.sha256()
        self._blob_size = 0

    def update(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the tar."""
        super().update(data)
        self._write(self._compressor.compress(data))

    def finish(self, files: tuple[oci.File, ...]) -> oci.BuiltLayer:
        """Return the layer; its blob is staged."""
        self._write(self._compressor.flush())
        os.fsync(self._file.fileno())
        digest = f"sha256:{self._blob.hexdigest()}"
        self._staging.blobs[digest] = self._path
        return oci.BuiltLayer(digest, self._blob_size, files, super().finish(files).digest, self.compression)

    def _write(self, data: bytes) -> None:
        self._blob.update(data)
        self._blob_size += len(data)
        disk.put(self._file, data)


class Packer:
    """Packs the layers of one capture, one after the other."""

    def __init__(
        self, root: int, seen: Mapping[str, source.Seen], staging: Staging, compression: str
    ) -> None:
        self._root = root
        self._seen = seen
        self._staging = staging
        self._compression = compression
        self._packed = 0
        self._layer_lane = ThreadPoolExecutor(1, thread_name_prefix="layer")
        self._file_lane = ThreadPoolExecutor(1, thread_name_prefix="file")
        self._buffers = [memoryview(mmap.mmap(-1, _CHUNK)) for _ in range(_BUFFERS)]

    def __enter__(self) -> "Packer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._layer_lane.shutdown()
        self._file_lane.shutdown()

    def pack(self, layer: layers.Layer) -> oci.BuiltLayer:
        """Write the layer's files into the tree; return what the manifest says of it.

        Raises:
            errors.Temporary: `OutputStillChanging`.
        """
        if self._compression != "zstd":
            return self._pack(layer, Tar())
        path = self._staging.path / f"layer-{self._packed}"
        self._packed += 1
        with path.open("xb", buffering=0) as blob:
            return self._pack(layer, Compressed(self._staging, path, blob))

    def _pack(self, layer: layers.Layer, tar: Tar) -> oci.BuiltLayer:
        files: list[oci.File] = []
        for header, entry in layers.entries(layer):
            tar.update(header)
            if entry is not None:
                files.append(oci.File(entry.path, self._file(entry, tar), entry.size))
                tar.update(layers.padding(entry.size))
        tar.update(layers.TRAILER)
        return tar.finish(tuple(files))

    def _file(self, entry: layers.Entry, tar: Tar) -> str:
        own = hashlib.sha256()
        target = self._staging.file_path(entry.path)
        with (
            source.reading(self._root, entry.path, self._seen[entry.path]) as file,
            disk.Copy(target, direct=entry.size >= layers.BIG_FILE) as copy,
        ):
            if entry.size <= _ALONE:
                data = self._fill(file, 0, entry.path, entry.size)
                own.update(data)
                tar.update(data)
                copy.write(data)
            else:
                self._stream(entry, file, copy, own, tar)
        return f"sha256:{own.hexdigest()}"

    def _stream(
        self, entry: layers.Entry, file: BinaryIO, copy: disk.Copy, own: "hashlib._Hash", tar: Tar
    ) -> None:
        at_work: list[tuple[Future[None], ...]] = [() for _ in self._buffers]
        for number, start in enumerate(range(0, entry.size, _CHUNK)):
            slot = number % _BUFFERS
            _finished(at_work[slot])
            data = self._fill(file, slot, entry.path, min(_CHUNK, entry.size - start))
            at_work[slot] = (
                self._layer_lane.submit(tar.update, data),
                self._file_lane.submit(own.update, data),
            )
            copy.write(data)
        for work in at_work:
            _finished(work)

    def _fill(self, file: BinaryIO, slot: int, path: str, size: int) -> memoryview:
        buffer = self._buffers[slot][:size]
        done = 0
        while done < size:
            count = file.readinto(buffer[done:])  # type: ignore[attr-defined]
            if not count:
                raise source.still_changing(path)
            done += count
        return buffer


def _finished(work: tuple[Future[None], ...]) -> None:
    for part in work:
        part.result()
