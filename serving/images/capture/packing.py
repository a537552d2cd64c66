"""Each file is read once: into the tree, into its own hash, and into its layer's.

Two hashes of each byte are what a build costs; they run on a thread each (hashlib releases the lock) while this one
reads, others write and sync, over the ends of files and layers. Memory is a few buffers, whatever the size.
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

from serving.images.capture import source
from serving.images.documents import layers, oci
from serving.images.store import disk
from serving.images.store.staging import Staging

_CHUNK = 4 * 1024 * 1024
"""Bytes read at a time. Larger chunks were not faster; an anonymous map is aligned as direct writes need it."""
_BUFFERS = 8
"""Chunks alive at once: some being read while the threads work on others; disks and hashes are fast by turns."""
_WRITERS = 2
"""Writes at once: the disk has the next one already when one has ended, however busy the cores are with hashing."""
_UNSYNCED = 32
"""Files that wait to be synced at once; each is an open descriptor."""
_ZSTD_LEVEL = 3
"""Fixed, as is one thread: both change the bytes. Higher levels gain little on weights."""


class Tar:
    """A layer on its way: hashes what goes into it. Its methods run on one thread, in order."""

    compression = ""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._size = 0

    def update(self, ahead: bytes, data: memoryview) -> None:
        """Take the next bytes of the tar: headers, and the file content after them."""
        for part in (ahead, data):
            self._hash.update(part)
            self._size += len(part)

    def finish(self, rest: bytes) -> oci.BuiltLayer:
        """Take the last bytes; return the layer, without its files."""
        self.update(rest, memoryview(b""))
        return oci.BuiltLayer(self.diff_id, self._size, (), self.diff_id)

    @property
    def diff_id(self) -> str:
        """Digest of what was taken so far."""
        return f"sha256:{self._hash.hexdigest()}"


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

    def update(self, ahead: bytes, data: memoryview) -> None:
        """Take the next bytes of the tar."""
        super().update(ahead, data)
        for part in (ahead, data):
            self._write(self._compressor.compress(part))

    def finish(self, rest: bytes) -> oci.BuiltLayer:
        """Take the last bytes; return the layer, without its files. Its blob is staged."""
        super().finish(rest)
        self._write(self._compressor.flush())
        os.fsync(self._file.fileno())
        digest = f"sha256:{self._blob.hexdigest()}"
        self._staging.blobs[digest] = self._path
        return oci.BuiltLayer(digest, self._blob_size, (), self.diff_id, self.compression)

    def _write(self, data: bytes) -> None:
        self._blob.update(data)
        self._blob_size += len(data)
        disk.put(self._file, data)


@dataclass(frozen=True)
class _Packed:
    """A layer all of whose bytes were read; the threads may still be at it."""

    layer: Future[oci.BuiltLayer]
    files: list[tuple[layers.Entry, Future[str]]]

    def built(self) -> oci.BuiltLayer:
        files = tuple(oci.File(entry.path, digest.result(), entry.size) for entry, digest in self.files)
        return replace(self.layer.result(), files=files)


def pack(
    root: int,
    seen: Mapping[str, source.Seen],
    plan: Iterable[layers.Layer],
    staging: Staging,
    compression: str,
) -> list[oci.BuiltLayer]:
    """Write the files into the staged tree; return what the manifest says of their layers.

    Args:
        root: descriptor of the directory.
        seen: its files, as the walk found them.
        plan: which go into which layer.
        staging: where to.
        compression: `none` or `zstd`.

    Raises:
        errors.Temporary: `OutputStillChanging`.
    """
    # Threads end before files are closed: a late write must not find its descriptor in another file's hands.
    with ExitStack() as opened, ExitStack() as lanes:
        packer = _Packer(root, seen, staging, opened, lanes)
        packed = [packer.layer(layer, compression) for layer in plan]
        packer.wait()
        return [found.built() for found in packed]


class _Packer:
    def __init__(
        self,
        root: int,
        seen: Mapping[str, source.Seen],
        staging: Staging,
        opened: ExitStack,
        lanes: ExitStack,
    ) -> None:
        self._root = root
        self._seen = seen
        self._staging = staging
        self._opened = opened
        self._layer_lane, self._file_lane, self._write_lane, self._sync_lane = (
            lanes.enter_context(ThreadPoolExecutor(threads, thread_name_prefix=name))
            for name, threads in (("layer", 1), ("file", 1), ("write", _WRITERS), ("sync", 1))
        )
        self._buffers = deque(memoryview(mmap.mmap(-1, _CHUNK)) for _ in range(_BUFFERS))
        self._at_work: deque[tuple[Future[None], ...]] = deque(() for _ in range(_BUFFERS))
        self._unsynced: deque[Future[None]] = deque()
        self._numbers = itertools.count()

    def layer(self, layer: layers.Layer, compression: str) -> _Packed:
        tar = self._tar(compression)
        ahead = b""
        files: list[tuple[layers.Entry, Future[str]]] = []
        for header, entry in layers.entries(layer):
            ahead += header
            if entry is not None:
                files.append((entry, self._file(entry, tar, ahead)))
                ahead = layers.padding(entry.size)
        return _Packed(self._layer_lane.submit(tar.finish, ahead + layers.TRAILER), files)

    def wait(self) -> None:
        """Wait for everything that was begun, and raise what went wrong."""
        for work in self._at_work:
            _finish(work)
        _finish(self._unsynced)

    def _tar(self, compression: str) -> Tar:
        if compression != "zstd":
            return Tar()
        path = self._staging.path / f"layer-{next(self._numbers)}"
        return Compressed(self._staging, path, self._opened.enter_context(path.open("xb", buffering=0)))

    def _file(self, entry: layers.Entry, tar: Tar, ahead: bytes) -> Future[str]:
        own = hashlib.sha256()
        path = self._staging.file_path(entry.path)
        copy = disk.Copy(path, entry.size, direct=entry.size >= layers.BIG_FILE)
        self._opened.callback(copy.close)
        # The latest are enough: those before have lent their buffers again, hence ended.
        written: deque[Future[None]] = deque(maxlen=_BUFFERS)
        with source.reading(self._root, entry.path, self._seen[entry.path]) as file:
            for start in range(0, max(entry.size, 1), _CHUNK):
                data = self._fill(file, entry.path, min(_CHUNK, entry.size - start))
                written.append(self._write_lane.submit(copy.write, data, start))
                self._at_work.append(
                    (
                        self._layer_lane.submit(tar.update, ahead, data),
                        self._file_lane.submit(own.update, data),
                        written[-1],
                    )
                )
                ahead = b""
        self._unsynced.append(self._sync_lane.submit(_sync, copy, written))
        if len(self._unsynced) > _UNSYNCED:
            self._unsynced.popleft().result()
        return self._file_lane.submit(lambda: f"sha256:{own.hexdigest()}")

    def _fill(self, file: BinaryIO, path: str, size: int) -> memoryview:
        """Read so many bytes into the buffer whose last use is longest ago."""
        _finish(self._at_work.popleft())
        self._buffers.rotate(-1)
        data = self._buffers[-1][:size]
        done = 0
        while done < size:
            count = file.readinto(data[done:])  # type: ignore[attr-defined]
            if not count:
                raise source.still_changing(path)
            done += count
        return data


def _sync(copy: disk.Copy, written: Iterable[Future[None]]) -> None:
    _finish(written)
    copy.finish()


def _finish(work: Iterable[Future[None]]) -> None:
    for part in work:
        part.result()
