"""Walks the fields of protobuf messages in a file, without their values. Pure.

`serving.protobuf` reads messages that are in memory; a model may have gigabytes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from serving.images.file_formats.content import Content

VARINT, _FIXED64, BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types (protobuf.dev/programming-guides/encoding)."""
MOST_FIELDS = 1_000_000
"""Most fields that a caller should walk in one file, which takes 2 s. Each word of a SentencePiece
vocabulary is a field."""
_LONGEST_VARINT = 10
"""Bytes, for 64 bits at 7 bits each."""


class MessageField(NamedTuple):
    """A field of a message, and the place of its value in the file."""

    number: int
    wire_type: int
    begin: int
    """Offset of the first byte of the value; of BYTES, behind their length."""
    end: int
    """Offset behind the value."""


def fields(content: Content, begin: int, end: int) -> Iterator[MessageField]:
    """Yield the fields of the message between two offsets.

    Raises:
        Unexamined: a tag or a length is not available.
        ValueError: the bytes are not fields.
    """
    at = begin
    while at < end:
        tag, at = _varint(content, at)
        wire_type = tag & 7
        value_begin = at
        if wire_type in (_FIXED64, _FIXED32):
            at += 8 if wire_type == _FIXED64 else 4
        else:
            value, at = _varint(content, at)
            if wire_type == BYTES:
                value_begin, at = at, at + value
        if at > end or wire_type not in (VARINT, _FIXED64, BYTES, _FIXED32):
            raise ValueError
        yield MessageField(tag >> 3, wire_type, value_begin, at)


def _varint(content: Content, at: int) -> tuple[int, int]:
    """Return (value, offset behind it) of the varint at an offset."""
    value = 0
    for place, byte in enumerate(content.read(at, _LONGEST_VARINT)):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError
