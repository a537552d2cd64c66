"""Writes the files of a directory to a staged tree, and hashes each file and each layer, in one pass.

The cost of a build is two hashes of each byte. Each hash runs on a thread of its own (hashlib releases the
GIL), while the calling thread reads, and other threads write and sync. Reading does not wait at the ends of
files and layers. Memory is `_BUFFERS` chunks, independent of the size of the image.
"""

import hashlib
import itertools
import mmap
import os
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import zstandard

from serving.images.building import source
from serving.images.documents import layers, oci
from serving.images.store import disk
from serving.images.store.staging import Staging

_CHUNK = 4 * 1024 * 1024
"""Bytes read at once; larger chunks were not faster."""
_BUFFERS = 8
"""Chunks in memory at once: disks and hashes are slower by turns."""
_WRITERS = 2
"""Concurrent writes: when one ends, the disk has the next one, even if hashing takes all cores."""
_UNSYNCED = 32
"""Most files that wait for their sync; each has an open descriptor."""
_ZSTD_LEVEL = 3
"""Fixed, as is the single thread: both change the bytes. Higher levels gain little on weights."""


class LayerHash:
    """Digest and size of a layer while its bytes pass. Its methods run on one thread, in order."""

    compression = ""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._size = 0

    def update(self, headers: bytes, data: memoryview) -> None:
        """Add the next bytes of the tar: headers, and the file content after them."""
        for part in (headers, data):
            self._hash.update(part)
            self._size += len(part)

    def finish(self, end: bytes) -> oci.BuiltLayer:
        """Add the last bytes; return the layer, without its files."""
        self.update(end, memoryview(b""))
        return oci.BuiltLayer(self.diff_id, self._size, (), self.diff_id)

    @property
    def diff_id(self) -> str:
        """Digest of the bytes so far."""
        return f"sha256:{self._hash.hexdigest()}"


class CompressedLayer(LayerHash):
    """A zstd layer. Its blob is kept: another version of the library may compress differently."""

    compression = "zstd"

    def __init__(self, staging: Staging, path: Path, file: BinaryIO) -> None:
        super().__init__()
        self._staging = staging
        self._path = path
        self._file = file
        self._compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
        self._blob = hashlib.sha256()
        self._blob_size = 0

    def update(self, headers: bytes, data: memoryview) -> None:
        """Add the next bytes of the tar."""
        super().update(headers, data)
        for part in (headers, data):
            self._write(self._compressor.compress(part))

    def finish(self, end: bytes) -> oci.BuiltLayer:
        """Add the last bytes; return the layer, without its files. Its blob is staged."""
        super().finish(end)
        self._write(self._compressor.flush())
        os.fsync(self._file.fileno())
        digest = f"sha256:{self._blob.hexdigest()}"
        self._staging.blobs[digest] = self._path
        return oci.BuiltLayer(digest, self._blob_size, (), self.diff_id, self.compression)

    def _write(self, data: bytes) -> None:
        self._blob.update(data)
        self._blob_size += len(data)
        disk.write_all(self._file, data)


@dataclass
class _Buffer:
    """A chunk in memory, and the hashes and the write that may still read it."""

    memory: memoryview
    """`_CHUNK` bytes of an anonymous map, which is aligned for direct IO."""
    work: tuple[Future[None], ...] = ()


@dataclass(frozen=True)
class _Packed:
    """A layer whose bytes were all read; threads may still hash and write them."""

    layer: Future[oci.BuiltLayer]
    """The layer without its files."""
    files: list[tuple[layers.LayerEntry, Future[str]]]
    """Each file of the layer, and its digest."""

    def built(self) -> oci.BuiltLayer:
        files = tuple(oci.File(entry.path, digest.result(), entry.size) for entry, digest in self.files)
        return replace(self.layer.result(), files=files)


def pack(
    root: int,
    stamps: Mapping[str, disk.FileStamp],
    plan: Iterable[layers.LayerPlan],
    staging: Staging,
    compression: str,
) -> list[oci.BuiltLayer]:
    """Write the files to the staged tree; return their layers.

    Args:
        root: descriptor of the directory.
        stamps: of its files, from `source.walk`.
        plan: the files of each layer.
        staging: has the tree.
        compression: `none` or `zstd`.

    Raises:
        errors.Temporary: `OutputStillChanging`.
    """
    # Threads end before files are closed: a late write must not hit another file that has got the descriptor.
    with ExitStack() as opened, ExitStack() as pools:
        packer = _Packer(root, stamps, staging, opened, pools)
        packed = [packer.layer(layer, compression) for layer in plan]
        packer.wait()
        return [layer.built() for layer in packed]


class _Packer:
    def __init__(
        self,
        root: int,
        stamps: Mapping[str, disk.FileStamp],
        staging: Staging,
        opened: ExitStack,
        pools: ExitStack,
    ) -> None:
        self._root = root
        self._stamps = stamps
        self._staging = staging
        self._opened = opened
        self._layer_pool, self._file_pool, self._write_pool, self._sync_pool = (
            pools.enter_context(ThreadPoolExecutor(threads, thread_name_prefix=name))
            for name, threads in (("layer", 1), ("file", 1), ("write", _WRITERS), ("sync", 1))
        )
        self._buffers = deque(_Buffer(memoryview(mmap.mmap(-1, _CHUNK))) for _ in range(_BUFFERS))
        """The least recently used one first."""
        self._unsynced: deque[Future[None]] = deque()
        """The syncs of files whose bytes were all read, oldest first."""
        self._numbers = itertools.count()
        """Numbers for the file names of compressed layers."""

    def layer(self, layer: layers.LayerPlan, compression: str) -> _Packed:
        """Read the files of a layer, and queue the hashes and writes of their bytes."""
        layer_hash = self._layer_hash(compression)
        headers = b""
        files: list[tuple[layers.LayerEntry, Future[str]]] = []
        for header, entry in layers.entries(layer):
            headers += header
            if entry is not None:
                files.append((entry, self._file(entry, layer_hash, headers)))
                headers = layers.padding(entry.size)
        return _Packed(self._layer_pool.submit(layer_hash.finish, headers + layers.TRAILER), files)

    def wait(self) -> None:
        """Wait for all work, and raise its errors."""
        for buffer in self._buffers:
            _finish(buffer.work)
        _finish(self._unsynced)

    def _layer_hash(self, compression: str) -> LayerHash:
        if compression != "zstd":
            return LayerHash()
        path = self._staging.path / f"layer-{next(self._numbers)}"
        return CompressedLayer(self._staging, path, self._opened.enter_context(path.open("xb", buffering=0)))

    def _file(self, entry: layers.LayerEntry, layer_hash: LayerHash, headers: bytes) -> Future[str]:
        """Read a file, and queue its hashes and writes; return its digest.

        `headers` are the bytes of the tar between the file before it and the content of this file.
        """
        file_hash = hashlib.sha256()
        path = self._staging.file_path(entry.path)
        copy = disk.NewFile(path, entry.size, direct=entry.size >= layers.BIG_FILE)
        self._opened.callback(copy.close)
        # The last `_BUFFERS` writes suffice: an earlier one has ended, as its buffer has been used again.
        writes: deque[Future[None]] = deque(maxlen=_BUFFERS)
        with source.open_file(self._root, entry.path, self._stamps[entry.path]) as file:
            for start in range(0, max(entry.size, 1), _CHUNK):  # an empty file has one empty chunk
                buffer = self._next_buffer()
                data = buffer.memory[: min(_CHUNK, entry.size - start)]
                _fill(data, file, entry.path)
                writes.append(self._write_pool.submit(copy.write, data, start))
                buffer.work = (
                    self._layer_pool.submit(layer_hash.update, headers, data),
                    self._file_pool.submit(file_hash.update, data),
                    writes[-1],
                )
                headers = b""
        self._unsynced.append(self._sync_pool.submit(_sync, copy, writes))
        if len(self._unsynced) > _UNSYNCED:
            self._unsynced.popleft().result()
        return self._file_pool.submit(lambda: f"sha256:{file_hash.hexdigest()}")

    def _next_buffer(self) -> _Buffer:
        """Return the least recently used buffer, after its work has ended."""
        buffer = self._buffers[0]
        _finish(buffer.work)
        self._buffers.rotate(-1)
        return buffer


def _fill(data: memoryview, file: BinaryIO, path: str) -> None:
    """Read the next `len(data)` bytes of the file at `path`."""
    filled = 0
    while filled < len(data):
        count = file.readinto(data[filled:])  # type: ignore[attr-defined]
        if not count:
            raise source.still_changing(path)
        filled += count


def _sync(copy: disk.NewFile, writes: Iterable[Future[None]]) -> None:
    _finish(writes)
    copy.finish()


def _finish(work: Iterable[Future[None]]) -> None:
    """Wait for the work, and raise its first error."""
    for part in work:
        part.result()
