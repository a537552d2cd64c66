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


_END = struct.Struct("<4s4H2IH")
"""APPNOTE.TXT 4.3.16: signature, disks, numbers of entries, size and offset of the directory, length of the
comment."""
_END64_LOCATOR = struct.Struct("<4sIQI")
"""4.3.15: signature, disk, offset of the zip64 end, disks."""
_END64 = struct.Struct("<4sQ2H2I4Q")
"""4.3.14, version 1: signature, size of the rest, versions, disks, numbers of entries, size and offset."""
_IN_ZIP64 = (0xFFFF, 0xFFFFFFFF)


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
        Unreadable: the archive, or a member, cannot be read, or readers could disagree on its members.
    """
    try:
        if not _has_one_directory(content):
            raise Unreadable
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


def _has_one_directory(content: Content) -> bool:
    """Whether every reader finds the same directory: directly before its end, which ends the file.

    zipfile takes the bytes before the end for the directory, and adds what stands before the archive to all
    offsets; miniz, PyTorch's reader, goes to the offset that the end names. Comments hide other ends.
    """
    at = content.size - _END.size
    if at < 0:
        return False
    size: int
    offset: int
    signature, *numbers, comment = _END.unpack(content.read(at, _END.size))
    if signature != b"PK\x05\x06" or comment:
        return False
    size, offset = numbers[-2:]
    if at >= _END64_LOCATOR.size + _END64.size:
        locator = _END64_LOCATOR.unpack(content.read(at - _END64_LOCATOR.size, _END64_LOCATOR.size))
        if locator[0] == b"PK\x06\x07":
            at -= _END64_LOCATOR.size + _END64.size
            signature, rest, numbers64 = _end64(content, at)
            if (signature, rest, locator[2]) != (b"PK\x06\x06", _END64.size - 12, at):
                return False
            if any(old not in (new, *_IN_ZIP64) for old, new in zip(numbers, numbers64, strict=True)):
                return False
            size, offset = numbers64[-2:]
    return offset + size == at


def _end64(content: Content, at: int) -> tuple[bytes, int, list[int]]:
    """Return the signature, the size of the rest, and the numbers that the end has in 2 and 4 bytes."""
    signature, rest, _, _, *numbers = _END64.unpack(content.read(at, _END64.size))
    return signature, rest, numbers
