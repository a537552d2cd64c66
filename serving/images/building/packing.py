"""Writes the files of a directory to a staged tree, and hashes each file and each layer, in one pass.

Two hashes of each byte are the cost of a build. Each runs on a thread of its own (hashlib releases the lock)
while this one reads and others write and sync, across the ends of files and layers. Memory is a few buffers,
whatever the size.
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
"""Bytes read at once; larger chunks were not faster. Buffers are anonymous maps, aligned for direct IO."""
_BUFFERS = 8
"""Chunks in memory at once: disks and hashes are slower by turns."""
_WRITERS = 2
"""Writes at once: the disk has the next one when one ends, even if hashing takes all cores."""
_UNSYNCED = 32
"""Most files that wait to be synced; each is an open descriptor."""
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


@dataclass(frozen=True)
class _Packed:
    """A layer whose bytes were all read; threads may still hash and write them."""

    layer: Future[oci.BuiltLayer]
    files: list[tuple[layers.LayerEntry, Future[str]]]

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
        self._buffers = deque(memoryview(mmap.mmap(-1, _CHUNK)) for _ in range(_BUFFERS))
        self._busy: deque[tuple[Future[None], ...]] = deque(() for _ in range(_BUFFERS))
        self._unsynced: deque[Future[None]] = deque()
        self._numbers = itertools.count()

    def layer(self, layer: layers.LayerPlan, compression: str) -> _Packed:
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
        for work in self._busy:
            _finish(work)
        _finish(self._unsynced)

    def _layer_hash(self, compression: str) -> LayerHash:
        if compression != "zstd":
            return LayerHash()
        path = self._staging.path / f"layer-{next(self._numbers)}"
        return CompressedLayer(self._staging, path, self._opened.enter_context(path.open("xb", buffering=0)))

    def _file(self, entry: layers.LayerEntry, layer_hash: LayerHash, headers: bytes) -> Future[str]:
        file_hash = hashlib.sha256()
        path = self._staging.file_path(entry.path)
        copy = disk.NewFile(path, entry.size, direct=entry.size >= layers.BIG_FILE)
        self._opened.callback(copy.close)
        # The latest suffice: the buffers of earlier writes are in use again, so these have ended.
        writes: deque[Future[None]] = deque(maxlen=_BUFFERS)
        with source.open_file(self._root, entry.path, self._stamps[entry.path]) as file:
            for start in range(0, max(entry.size, 1), _CHUNK):
                data = self._fill(file, entry.path, min(_CHUNK, entry.size - start))
                writes.append(self._write_pool.submit(copy.write, data, start))
                self._busy.append(
                    (
                        self._layer_pool.submit(layer_hash.update, headers, data),
                        self._file_pool.submit(file_hash.update, data),
                        writes[-1],
                    )
                )
                headers = b""
        self._unsynced.append(self._sync_pool.submit(_sync, copy, writes))
        if len(self._unsynced) > _UNSYNCED:
            self._unsynced.popleft().result()
        return self._file_pool.submit(lambda: f"sha256:{file_hash.hexdigest()}")

    def _fill(self, file: BinaryIO, path: str, size: int) -> memoryview:
        """Read `size` bytes into the least recently used buffer."""
        _finish(self._busy.popleft())
        self._buffers.rotate(-1)
        data = self._buffers[-1][:size]
        filled = 0
        while filled < size:
            count = file.readinto(data[filled:])  # type: ignore[attr-defined]
            if not count:
                raise source.still_changing(path)
            filled += count
        return data


def _sync(copy: disk.NewFile, writes: Iterable[Future[None]]) -> None:
    _finish(writes)
    copy.finish()


def _finish(work: Iterable[Future[None]]) -> None:
    for part in work:
        part.result()
