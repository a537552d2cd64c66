"""Reads an untrusted layer in one pass, with bounded memory. Writes nothing.

`tarfile` reads the headers, with a limit on their size. The frame of a tar is all of its bytes but the
content of files. The hash of the frame shows whether `layers.entries` reproduces the tar.
"""

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, TypeVar, cast

import zstandard

from serving.images.documents import layers
from serving.images.documents.image import invalid

CHUNK = 1024 * 1024
"""Most bytes of a file in one chunk."""
_MAX_HEADER = 1024 * 1024
"""Most bytes of headers of a member; a path has at most 4 KiB, and other pax records are small."""
_MAX_GLOBAL_RECORDS = 64
"""Most pax records of global headers, which `tarfile` keeps; POSIX defines 13 keywords, and `git archive`
writes one record."""
_MAX_MEMBERS = 100_000
"""Most members of a layer, those outside `models/` included."""
_MAX_WINDOW = 32 * 1024 * 1024
"""Most bytes of memory for a zstd frame; level 19 needs 8 MiB (zstd(1))."""
_T = TypeVar("_T")


class LayerStream(io.RawIOBase):
    """A layer's bytes as they arrive, hashed, and passed on to `keep`, which may write them to a file."""

    def __init__(self, chunks: Iterable[bytes], keep: Callable[[bytes], object] | None = None) -> None:
        self._chunks = iter(chunks)
        self._chunk = memoryview(b"")
        self._keep = keep
        self._hash = hashlib.sha256()
        self.size = 0  # bytes that arrived so far

    @property
    def digest(self) -> str:
        """`sha256:<hex>` of the bytes that arrived so far."""
        return f"sha256:{self._hash.hexdigest()}"

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read at most as much as the buffer holds; 0 at the end."""
        while not self._chunk:
            if not self._next():
                return 0
        count = min(len(buffer), len(self._chunk))
        buffer[:count] = self._chunk[:count]
        self._chunk = self._chunk[count:]
        return count

    def drain(self) -> None:
        """Read to the end, so that `digest` and `size` are those of the whole layer."""
        while self._next():
            pass
        self._chunk = memoryview(b"")

    def _next(self) -> bool:
        """Take the next chunk; False at the end."""
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self._chunk = memoryview(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)
        if self._keep is not None:
            self._keep(chunk)
        return True


class BoundedStream(io.RawIOBase):
    """The tar in a layer, decompressed; an image whose layer exceeds a bound is refused."""

    def __init__(self, stream: IO[bytes], layer: str, most: int) -> None:
        """`layer` is the layer's digest for the message, `most` the bound in bytes."""
        self._stream = stream
        self._layer = layer
        self._most = most
        self._size = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes.

        Raises:
            errors.Permanent: `InvalidImage`, more bytes than the bound. They are noticed within one read.
        """
        data = self._stream.read(size)
        self._size += len(data)
        if self._size > self._most:
            raise invalid(
                f"layer {self._layer}: may unpack to {self._most} bytes "
                f"(store.unpack_ratio, store.unpack_free_bytes), got {self._size} bytes before its end"
            )
        return data


def decompressed(source: LayerStream, compression: str) -> IO[bytes]:
    """Return the tar in a layer; `compression` is `gzip`, `zstd`, or empty."""
    if compression == "gzip":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=io.BufferedReader(source, CHUNK), mode="rb"))
    if compression == "zstd":
        reader = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).stream_reader(
            cast("IO[bytes]", source), read_across_frames=True
        )
        return cast("IO[bytes]", reader)
    return cast("IO[bytes]", source)


@dataclass(frozen=True)
class TarMember:
    """A regular file below `models/`: `path` is relative to it, `size` in bytes."""

    path: str
    size: int


class TarReader:
    """One pass over a tar. Read each file's bytes with `data` before the next member."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._tar_hash = hashlib.sha256()
        self._frame_hash = hashlib.sha256()
        self._position = 0  # bytes that were read so far
        self._header_bytes_left = _MAX_HEADER  # of the present member
        self._last_header = b""  # latest bytes that tarfile has read

    @property
    def diff_id(self) -> str:
        """`sha256:<hex>` of the whole tar, after the end of `members`."""
        return f"sha256:{self._tar_hash.hexdigest()}"

    @property
    def frame(self) -> str:
        """Hash (SHA-256, hexadecimal) of all bytes but the files' content, after the end of `members`."""
        return self._frame_hash.hexdigest()

    def members(self) -> Iterator[TarMember]:
        """Yield the files below `models/` in the archive's order.

        Raises:
            errors.Permanent: `InvalidImage`, not a tar, or with other members below `models/` than files and
                directories.
        """
        tar: Any = _reading(lambda: tarfile.TarFile(fileobj=cast("IO[bytes]", self)))
        for _ in range(_MAX_MEMBERS + 1):  # one more turn, for the end
            self._header_bytes_left = _MAX_HEADER
            info = _reading(tar.next)
            if info is None:
                break
            tar.members = []  # tarfile keeps each member in memory, for look-ups by name
            if len(tar.pax_headers) > _MAX_GLOBAL_RECORDS:
                raise invalid(f"the layer has more than {_MAX_GLOBAL_RECORDS} records in global pax headers")
            if (member := _checked(info)) is not None:
                yield member
        else:
            raise invalid(f"the layer has more than {_MAX_MEMBERS} members")
        # tarfile ends at any block that is no header, but a tar ends with a block of zeros, or without one:
        # then nothing was read last.
        if self._last_header.strip(b"\0"):
            raise invalid(f"no tar header at byte {self._position - len(self._last_header)}")
        while chunk := _reading(lambda: self._stream.read(CHUNK)):
            self._hash(chunk)

    def data(self, size: int) -> Iterator[bytes]:
        """Yield the content of the latest member in chunks; `size` is the member's."""
        remaining = size
        while remaining:
            chunk = _reading(lambda: self._stream.read(min(CHUNK, remaining)))  # noqa: B023 called at once
            if not chunk:
                raise invalid("the tar ends within a file")
            remaining -= len(chunk)
            self._tar_hash.update(chunk)  # but not the frame's
            self._position += len(chunk)
            yield chunk

    def tell(self) -> int:
        """For tarfile."""
        return self._position

    def seek(self, position: int) -> None:
        """For tarfile: forward only."""
        if position < self._position:
            raise invalid("the tar's headers point backwards")
        while self._position < position:
            chunk = self._stream.read(min(CHUNK, position - self._position))
            if not chunk:
                return
            self._hash(chunk)

    def read(self, size: int) -> bytes:
        """For tarfile: read headers, and the last byte of a padding, which tarfile skips by `seek`."""
        if size < 0:
            raise invalid(f"a member has {size} bytes of headers")
        self._header_bytes_left -= size
        if self._header_bytes_left < 0:
            raise invalid(f"a member has more than {_MAX_HEADER} bytes of headers")
        data = b""
        while len(data) < size and (chunk := self._stream.read(size - len(data))):
            data += chunk
        self._last_header = data
        self._hash(data)
        return data

    def _hash(self, data: bytes) -> None:
        self._tar_hash.update(data)
        self._frame_hash.update(data)
        self._position += len(data)


def _reading(read: Callable[[], _T]) -> _T:
    """Return the result of `read`; its errors about the bytes become `InvalidImage`."""
    try:
        return read()
    except (tarfile.TarError, zstandard.ZstdError, zlib.error, gzip.BadGzipFile) as error:
        raise invalid(f"the layer cannot be read: {error}") from error
    except EOFError as error:
        raise invalid("the layer cannot be read: it ends within a member") from error
    except (ValueError, OverflowError, IndexError) as error:  # of tarfile, for some malformed headers
        raise invalid("the layer cannot be read: a header of a member is malformed") from error
    except RecursionError as error:  # of tarfile, which calls itself for each extended header
        raise invalid("the layer cannot be read: a member has too many extended headers") from error


def _checked(info: tarfile.TarInfo) -> TarMember | None:
    """Return the file; None for a directory or a member outside `models/`, which are not unpacked.

    Raises:
        errors.Permanent: `InvalidImage`, a path that breaks a rule, or another type of member below
            `models/`.
    """
    name = info.name.removeprefix("./").rstrip("/")
    if name in {"", "."}:
        return None
    first, _, path = name.partition("/")
    # Only the first component matters here: a member of another directory cannot reach `models/`.
    if first in {"", ".", ".."} or first.startswith(layers.WHITEOUT):
        raise invalid(f"{info.name!r}: {layers.broken_rule(name)}")
    if first != layers.ROOT or (info.isdir() and not path):
        return None
    if rule := layers.broken_rule(path):  # a file or a link `models` has an empty path, which is refused
        raise invalid(f"{info.name!r}: {rule}")
    if info.isdir():
        return None
    if info.type not in {tarfile.REGTYPE, tarfile.AREGTYPE} or info.issparse():
        raise invalid(f"{info.name!r}: must be a regular file, got tar type {info.type!r}")
    if info.size < 0:
        raise invalid(f"{info.name!r}: has {info.size} bytes")
    return TarMember(path, info.size)


def frame(layer: layers.LayerPlan) -> str:
    """Return the `TarReader.frame` of the tar that `layers.entries` makes."""
    frame_hash = hashlib.sha256()
    for header, entry in layers.entries(layer):
        frame_hash.update(header)
        if entry is not None:
            frame_hash.update(layers.padding(entry.size))
    frame_hash.update(layers.TRAILER)
    return frame_hash.hexdigest()
