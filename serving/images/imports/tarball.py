"""Reading a layer that comes from outside: bounded memory, each byte once, nothing believed.

`tarfile` reads the headers. What it may read at once is bounded, and all that it asks for is hashed apart from the
files' bytes (the frame), so that a layer is known to be one that `layers.entries` gives again. Writes nothing.
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
"""Bytes of a file that are given at once."""
_MAX_HEADER = 1024 * 1024
"""Bytes of headers of one member; a path has at most 4 KiB, and pax records of others are small."""
_MAX_MEMBERS = 100_000
"""Members of one layer, those outside `models/` too."""
_MAX_WINDOW = 32 * 1024 * 1024
"""Bytes of memory that a zstd frame may ask for; level 19 asks for 8 MiB (zstd(1))."""
_T = TypeVar("_T")


class Source(io.RawIOBase):
    """The bytes as they arrive, hashed, and passed on to `keep`."""

    def __init__(self, chunks: Iterable[bytes], keep: Callable[[bytes], object] | None = None) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")
        self._keep = keep
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        """`sha256:<hex>` of what was read so far."""
        return f"sha256:{self._hash.hexdigest()}"

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read at most as much as the buffer holds; 0 at the end."""
        while not self._rest:
            if not self._take():
                return 0
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def drain(self) -> None:
        """Read to the end."""
        while self._take():
            pass
        self._rest = memoryview(b"")

    def _take(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self._rest = memoryview(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)
        if self._keep is not None:
            self._keep(chunk)
        return True


def decompressed(source: Source, compression: str) -> IO[bytes]:
    """Return the tar's bytes."""
    if compression == "gzip":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=io.BufferedReader(source, CHUNK), mode="rb"))
    if compression == "zstd":
        reader = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).stream_reader(
            cast("IO[bytes]", source), read_across_frames=True
        )
        return cast("IO[bytes]", reader)
    return cast("IO[bytes]", source)


@dataclass(frozen=True)
class Member:
    """A regular file below `models/`: `path` is relative to it, `size` in bytes."""

    path: str
    size: int


class Tar:
    """One pass over a tar. Read each file's bytes with `data` before the next member is asked for."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._all = hashlib.sha256()
        self._frame = hashlib.sha256()
        self._position = 0
        self._allowance = _MAX_HEADER
        self._last = b""

    @property
    def diff_id(self) -> str:
        """`sha256:<hex>` of the whole tar, once `members` has ended."""
        return f"sha256:{self._all.hexdigest()}"

    @property
    def frame(self) -> str:
        """Hash of all that is no file's content, once `members` has ended."""
        return self._frame.hexdigest()

    def members(self) -> Iterator[Member]:
        """Yield the files below `models/` in the archive's order.

        Raises:
            errors.Permanent: `InvalidImage`: not a tar, or it has below `models/` what is no file of one name.
        """
        tar: Any = _reading(lambda: tarfile.TarFile(fileobj=cast("IO[bytes]", self)))
        for _ in range(_MAX_MEMBERS):
            self._allowance = _MAX_HEADER
            info = _reading(tar.next)
            if info is None:
                break
            tar.members = []  # tarfile keeps each member for look-ups by name
            if (member := _checked(info)) is not None:
                yield member
        else:
            raise invalid(f"the layer has more than {_MAX_MEMBERS} members")
        if self._last.strip(b"\0"):
            raise invalid(f"no tar header at byte {self._position - len(self._last)}")
        while rest := _reading(lambda: self._stream.read(CHUNK)):
            self._hashed(rest)

    def data(self, size: int) -> Iterator[bytes]:
        """Yield the content of the member that was given last."""
        left = size
        while left:
            chunk = _reading(lambda: self._stream.read(min(CHUNK, left)))  # noqa: B023 called at once
            if not chunk:
                raise invalid("the tar ends within a file")
            left -= len(chunk)
            self._all.update(chunk)
            self._position += len(chunk)
            yield chunk

    def tell(self) -> int:
        """For tarfile."""
        return self._position

    def seek(self, position: int) -> None:
        """For tarfile: forward only."""
        if position < self._position:
            raise invalid("the tar's headers lead back")
        while self._position < position:
            chunk = self._stream.read(min(CHUNK, position - self._position))
            if not chunk:
                return
            self._hashed(chunk)

    def read(self, size: int) -> bytes:
        """For tarfile: headers, and the last byte of a padding."""
        self._allowance -= size
        if self._allowance < 0:
            raise invalid(f"a member has more than {_MAX_HEADER} bytes of headers")
        found = b""
        while len(found) < size and (chunk := self._stream.read(size - len(found))):
            found += chunk
        self._last = found
        self._hashed(found)
        return found

    def _hashed(self, data: bytes) -> None:
        self._all.update(data)
        self._frame.update(data)
        self._position += len(data)


def _reading(read: Callable[[], _T]) -> _T:
    try:
        return read()
    except (tarfile.TarError, zstandard.ZstdError, zlib.error, gzip.BadGzipFile) as error:
        raise invalid(f"the layer cannot be read: {error}") from error
    except (EOFError, ValueError, OverflowError, IndexError) as error:
        # What tarfile lets through of odd headers.
        raise invalid(f"the layer cannot be read: {error!r}") from error


def _checked(info: tarfile.TarInfo) -> Member | None:
    """Return the file, or None for what does not end up in the tree: directories, and all outside `models/`."""
    name = info.name.removeprefix("./").rstrip("/")
    if name in {"", "."}:
        return None
    first, _, path = name.partition("/")
    if first in {"", ".", ".."} or first.startswith(layers.WHITEOUT):
        raise invalid(f"{info.name!r}: {layers.broken_rule(name)}")
    if first != layers.ROOT or (info.isdir() and not path):
        return None
    if rule := layers.broken_rule(path):
        raise invalid(f"{info.name!r}: {rule}")
    if info.isdir():
        return None
    if info.type not in {tarfile.REGTYPE, tarfile.AREGTYPE} or info.issparse():
        raise invalid(f"{info.name!r}: must be a regular file, got tar type {info.type!r}")
    return Member(path, info.size)


def frame(layer: layers.Layer) -> str:
    """Return `Tar.frame` of the tar that `layers.entries` gives."""
    found = hashlib.sha256()
    for header, entry in layers.entries(layer):
        found.update(header)
        if entry is not None:
            found.update(layers.padding(entry.size))
    found.update(layers.TRAILER)
    return found.hexdigest()
