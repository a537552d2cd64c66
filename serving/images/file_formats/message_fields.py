"""Walks the fields of protobuf messages in a file, without their values. Pure.

`serving.protobuf` reads messages that are in memory; a model may have gigabytes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from serving.images.file_formats.content import Content

VARINT, _FIXED64, BYTES, _FIXED32 = 0, 1, 2, 5
MOST_FIELDS = 1_000_000
"""Fields of one walk: each word of a SentencePiece vocabulary is one. The walk takes 2 s."""


class Field(NamedTuple):
    """A field of a message, and the place of its value."""

    number: int
    wire_type: int
    begin: int
    end: int


def fields(content: Content, begin: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message between two offsets.

    Raises:
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
        yield Field(tag >> 3, wire_type, value_begin, at)


def _varint(content: Content, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(content.read(at, 10)):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError
