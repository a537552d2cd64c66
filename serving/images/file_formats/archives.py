"""Looks into zip archives, where PyTorch, Keras, NumPy and skops keep their parts. Pure.

Only the beginning of a member is unpacked, as a small archive may unpack to any size.
"""

import contextlib
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from serving.images.file_formats.content import HEAD, Content, Unexamined

MOST_MEMBERS = 20_000
"""An archive with more members is not examined; PyTorch's archives have one member for each tensor."""
NESTED = 16 * 1024 * 1024
"""Bytes of the largest nested archive that is examined: skops keeps sparse matrices in such archives."""
ALL_NESTED = 1024 * 1024 * 1024
"""Most bytes of all archives in one archive: a few kilobytes may unpack to `NESTED` bytes for each member."""
_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_UNREADABLE: tuple[type[Exception], ...] = (
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
with contextlib.suppress(ImportError):  # before Python 3.14, whose zipfile reads Zstandard
    from compression.zstd import ZstdError

    _UNREADABLE += (ZstdError,)
_END_SIGNATURE = b"PK\x05\x06"
_END = struct.Struct("<4s4H2IH")
"""The end record (APPNOTE.TXT 4.3.16): signature, two numbers of disks, two of entries, size and offset of
the directory, length of the comment."""
_END64_LOCATOR = struct.Struct("<4sIQI")
"""The locator of the zip64 end record (4.3.15): signature, disk, offset of that record, number of disks."""
_END64 = struct.Struct("<4sQ2H2I4Q")
"""The zip64 end record (4.3.14, version 1): signature, size of the record behind this field, two versions,
and the six numbers of the end record from the disks to the offset, in more bytes."""
_IN_ZIP64 = (0xFFFF, 0xFFFFFFFF)
"""Placeholders, of 2 and of 4 bytes, for a number that only the zip64 end record has."""


class Member(NamedTuple):
    """A member of an archive, and its bytes as far as they are examined."""

    name: str
    content: Content


class UnreadableArchive(Exception):
    """The archive cannot be examined."""


class _BoundedFile:
    """A file for zipfile that refuses to read more than `NESTED` bytes at once: the end record may claim a
    directory of any size.
    """

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
    """Whether programs would open the file as a zip archive: by its first bytes, or by the end record, as
    other bytes may stand before an archive.
    """
    return content.head.startswith(_MAGIC) or _END_SIGNATURE in _tail(content)


def _tail(content: Content) -> bytes:
    """Return the bytes in which an end record with its comment, of at most 0xFFFF bytes, may be."""
    at = max(content.size - 0xFFFF - _END.size, 0)
    try:
        return content.read(at, content.size - at)
    except Unexamined:
        return b""


def members(content: Content) -> Iterator[Member]:
    """Yield the members of an archive.

    Of a nested archive up to `NESTED` bytes are examined, of another member `HEAD` bytes.

    Raises:
        Unexamined: `content` lacks the end of the archive.
        UnreadableArchive: the archive, or a member, cannot be read, or readers could disagree on the members.
    """
    try:
        if not _has_one_directory(content):
            raise UnreadableArchive
        with zipfile.ZipFile(_BoundedFile(content.file, content.size)) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_MEMBERS:
                raise UnreadableArchive
            nested_bytes = 0
            for entry in entries:
                with archive.open(entry) as file:
                    head = file.read(HEAD)
                    if head.startswith(_MAGIC):
                        head += file.read(NESTED - len(head))
                        nested_bytes += len(head)
                        if nested_bytes > ALL_NESTED:
                            raise UnreadableArchive
                examined = min(len(head), entry.file_size)
                yield Member(entry.filename, Content(io.BytesIO(head), entry.file_size, examined))
    except _UNREADABLE as error:
        raise UnreadableArchive from error


def _has_one_directory(content: Content) -> bool:
    """Whether every reader finds the same directory: the bytes directly before the end record (or the zip64
    end record), which ends the file.

    zipfile takes the bytes before the end record for the directory, and adds the number of bytes before the
    archive to all offsets; miniz, PyTorch's reader, goes to the offset in the end record. A comment
    could hold another end record, so an archive with a comment is refused.
    """
    directory_end = content.size - _END.size
    if directory_end < 0:
        return False
    signature, *numbers, comment_size = _END.unpack(content.read(directory_end, _END.size))
    if signature != _END_SIGNATURE or comment_size:
        return False
    if directory_end >= _END64_LOCATOR.size + _END64.size:
        locator_at = directory_end - _END64_LOCATOR.size
        locator = content.read(locator_at, _END64_LOCATOR.size)
        locator_signature, _, end64_offset, _ = _END64_LOCATOR.unpack(locator)
        if locator_signature == b"PK\x06\x07":
            directory_end = locator_at - _END64.size
            if end64_offset != directory_end:
                return False
            numbers64 = _end64_numbers(content, end64_offset)
            if numbers64 is None or not _agree(numbers, numbers64):
                return False
            numbers = numbers64
    directory_size: int
    directory_offset: int
    directory_size, directory_offset = numbers[-2:]
    return directory_offset + directory_size == directory_end


def _end64_numbers(content: Content, at: int) -> list[int] | None:
    """Return the six numbers of the zip64 end record at an offset; None if there is no such record."""
    signature, size_behind, _, _, *numbers = _END64.unpack(content.read(at, _END64.size))
    size_before = 12  # the signature and the size itself
    is_record = signature == b"PK\x06\x06" and size_behind == _END64.size - size_before
    return numbers if is_record else None


def _agree(numbers: list[int], numbers64: list[int]) -> bool:
    """Whether each number of the end record is that of the zip64 end record, or a placeholder."""
    return all(old in (new, *_IN_ZIP64) for old, new in zip(numbers, numbers64, strict=True))
