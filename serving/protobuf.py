"""Protobuf's wire format: fields and their values, without any message type.

`serving.embedded.apiserver.requests.kubernetes_protobuf` adds the table of Kubernetes' fields. Encoding:
protobuf.dev/programming-guides/encoding.
"""

import struct
from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MASK = 0xFFFF_FFFF_FFFF_FFFF
"""The 64 bits of a varint: ten bytes of seven bits could hold 70."""

Content = int | bytes
"""Content of a field: the unsigned value of a varint, or the bytes of any other type."""


class Malformed(ValueError):
    """The bytes are not a message."""


def field(number: int, content: bytes) -> bytes:
    """Return a field of bytes: a string or an encoded message."""
    return _encode_varint(number << 3 | _BYTES) + _encode_varint(len(content)) + content


def varint(number: int, value: int) -> bytes:
    """Return a field of a non-negative integer."""
    return _encode_varint(number << 3 | _VARINT) + _encode_varint(value)


def double(number: int, value: float) -> bytes:
    """Return a field of a double."""
    return _encode_varint(number << 3 | _FIXED64) + struct.pack("<d", value)


def parts(data: bytes) -> Iterator[tuple[int, Content]]:
    """Yield the fields of a message: number and content.

    Raises:
        Malformed: the bytes end early, or are not fields.
    """
    at = 0
    while at < len(data):
        tag, at = decode_varint(data, at)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, at = decode_varint(data, at)
            yield tag >> 3, value
            continue
        if wire_type == _BYTES:
            size, at = decode_varint(data, at)
        elif wire_type in _FIXED_SIZES:
            size = _FIXED_SIZES[wire_type]
        else:
            raise Malformed(f"a field has the unknown wire type {wire_type}")
        if size > len(data) - at:
            raise Malformed("it ends early")
        yield tag >> 3, data[at : at + size]
        at += size


def decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned integer that begins at byte `at`, and the position after it.

    Raises:
        Malformed: the bytes end early, or the integer has more than ten.
    """
    value = 0
    try:
        for shift in range(0, 70, 7):
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & _MASK, at
    except IndexError:
        raise Malformed("it ends early") from None
    raise Malformed("a number has more than ten bytes")


def content(value: Content) -> bytes:
    """Return the content of a field of bytes.

    Raises:
        Malformed: it is a number.
    """
    if isinstance(value, int):
        raise Malformed("a number stands where a message or text is expected")
    return value


def text(value: Content) -> str:
    """Return the content of a string field.

    Raises:
        ValueError: it is not text (Malformed, or not UTF-8).
    """
    return content(value).decode()


def integer(value: Content) -> int:
    """Return a signed integer: two's complement in 64 bits.

    Raises:
        Malformed: it is not a number.
    """
    if isinstance(value, bytes):
        raise Malformed("text stands where a number is expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def real(value: Content) -> float:
    """Return a double.

    Raises:
        Malformed: it is not a double.
    """
    if isinstance(value, int) or len(value) != _FIXED_SIZES[_FIXED64]:
        raise Malformed("something stands where a double is expected")
    return float(struct.unpack("<d", value)[0])


def _encode_varint(number: int) -> bytes:
    """Return a non-negative integer in groups of seven bits, the lowest first.

    The high bit of a byte is set if another byte follows.
    """
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
