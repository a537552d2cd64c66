"""Protobuf's binary form, below any message: numbers, fields and what a message is made of. Knows no message.

Envoy's messages (`router/envoy/wire`) and Kubernetes' (`embedded/apiserver/handlers/kubernetes_protobuf`) stand on it, each with a table
of fields of its own. Encoding: protobuf.dev/programming-guides/encoding.
"""

import struct
from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MASK = 0xFFFF_FFFF_FFFF_FFFF

Content = int | bytes
"""Of one field: a varint's value, not yet signed, or the bytes of anything else."""


class Malformed(ValueError):
    """These bytes are no message."""


def field(number: int, content: bytes) -> bytes:
    """Return one field of bytes: a string, or a message that is encoded."""
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def varint(number: int, value: int) -> bytes:
    """Return one field of a whole number that is not negative."""
    return _varint(number << 3 | _VARINT) + _varint(value)


def double(number: int, value: float) -> bytes:
    """Return one field of a double."""
    return _varint(number << 3 | _FIXED64) + struct.pack("<d", value)


def parts(data: bytes) -> Iterator[tuple[int, Content]]:
    """Give the fields of a message: their numbers and contents.

    Raises:
        Malformed: the bytes end early, or are no fields.
    """
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        sort = tag & 7
        if sort == _VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, value
            continue
        if sort == _BYTES:
            size, at = _read_varint(data, at)
        elif sort in _FIXED_SIZES:
            size = _FIXED_SIZES[sort]
        else:
            raise Malformed(f"a field has the unknown wire type {sort}")
        if size > len(data) - at:
            raise Malformed("it ends early")
        yield tag >> 3, data[at : at + size]
        at += size


def content(value: Content) -> bytes:
    """Return the bytes of a field that has some.

    Raises:
        Malformed: it is a number.
    """
    if isinstance(value, int):
        raise Malformed("a number stands where a message or text is expected")
    return value


def text(value: Content) -> str:
    """Return the text of a field that has some.

    Raises:
        ValueError: it is none (Malformed, or not UTF-8).
    """
    return content(value).decode()


def whole(value: Content) -> int:
    """Return a signed whole number: two's complement in 64 bits.

    Raises:
        Malformed: it is none.
    """
    if isinstance(value, bytes):
        raise Malformed("text stands where a number is expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def real(value: Content) -> float:
    """Return a double.

    Raises:
        Malformed: it is none.
    """
    if isinstance(value, int) or len(value) != _FIXED_SIZES[_FIXED64]:
        raise Malformed("something stands where a double is expected")
    return float(struct.unpack("<d", value)[0])


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Malformed("it ends early")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value & _MASK, at
    raise Malformed("a number has more than ten bytes")
