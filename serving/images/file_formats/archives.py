"""Looks into zip archives, where PyTorch, Keras, NumPy and skops keep their parts. Pure.

Members are read up to a bound, whatever they unpack to.
"""

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from serving.images.file_formats.content import HEAD, Content, Unexamined

MOST_MEMBERS = 20_000
"""An archive with more is not looked into; PyTorch's have one for each tensor."""
NESTED = 16 * 1024 * 1024
"""Largest archive in an archive that is looked into: skops keeps sparse matrices so."""
ALL_NESTED = 1024 * 1024 * 1024
"""Most bytes of all archives in an archive: a few kilobytes may unpack to `NESTED` bytes for each member."""
_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_UNREADABLE = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    NotImplementedError,
    RuntimeError,
    EOFError,
    LookupError,
    OSError,
    ValueError,
    OverflowError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
)
"""The exceptions of zipfile for damaged, encrypted and made-up archives."""


class Member(NamedTuple):
    """A member of an archive, and its bytes as far as they are examined."""

    name: str
    content: Content


class Unreadable(Exception):
    """The archive cannot be looked into."""


class _BoundedFile:
    """A file of which no read returns more than `NESTED` bytes: a directory of entries may claim any size."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, count: int = -1) -> bytes:
        count = self._size - self._file.tell() if count < 0 else count
        if count > NESTED:
            raise zipfile.BadZipFile
        return self._file.read(count)


def is_zip(content: Content) -> bool:
    """Whether programs would open the file as a zip archive: by its first bytes, or by its directory at the
    end, which may have anything before it.
    """
    return content.head.startswith(_MAGIC) or b"PK\x05\x06" in _end(content)


def _end(content: Content) -> bytes:
    """Return where the end of the directory must be: the last 64 KiB and 22 bytes (APPNOTE.TXT, 4.3.16)."""
    at = max(content.size - 0xFFFF - 22, 0)
    try:
        return content.read(at, content.size - at)
    except Unexamined:
        return b""


def members(content: Content) -> Iterator[Member]:
    """Yield the members of an archive.

    Raises:
        Unreadable: the archive, or a member, cannot be read.
    """
    try:
        with zipfile.ZipFile(_BoundedFile(content.file, content.size)) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_MEMBERS:
                raise Unreadable
            nested = 0
            for entry in entries:
                with archive.open(entry) as file:
                    head = file.read(HEAD)
                    if head.startswith(_MAGIC):
                        head += file.read(NESTED - len(head))
                        nested += len(head)
                        if nested > ALL_NESTED:
                            raise Unreadable
                examined = min(len(head), entry.file_size)
                yield Member(entry.filename, Content(io.BytesIO(head), entry.file_size, examined))
    except _UNREADABLE as error:
        raise Unreadable from error
