"""The memory that a request takes while it is decoded, estimated before it is. Pure.

A parser makes up to 50 bytes of objects from one byte of JSON, so a bound of a body's bytes does not bound
them. The estimates are above what orjson, protobuf and NumPy take in all tried cases; counting takes 5 ms for
10 MB.
"""

from serving.runtimes.open_inference.tensors import bad_request, too_large

SMALL_BYTES = 64 * 1024
"""A body up to this size is decoded without an estimate: at worst it takes 4 MiB, and some milliseconds."""
_JSON_BYTE = 3
"""The parser's copy, a string, and the bytes of the string."""
_WIDE_BYTE = 6
"""The same where one character may make each of a string take four bytes."""
_JSON_TOKENS = ((b",", 100), (b'"', 60), (b"[", 300), (b"{", 1000))
"""Bytes for the value after a comma, half a string, a list and an object. Lists and objects take half of
it, but five times the time of a number; no request has many."""
_BINARY_STRING_BYTE = 12
"""An element of BYTES with two bytes takes six in the body, and 60 as an object."""
_MESSAGE_BYTE = 32
"""Of a gRPC message without its raw contents: parameters and short elements of BYTES take the most."""
_MAX_FIELDS = 1024
"""Of a message, each of which takes 280 bytes: far above 64 inputs, outputs and raw contents."""
_RAW_CONTENTS = 7
"""Number of the field `raw_input_contents`."""
_LENGTH_DELIMITED = 2
"""Wire type of strings, bytes and messages."""


def of_json(data: bytes, size: int) -> int:
    """Return the bytes that decoding takes of a body of `size` bytes of JSON before binary tensors."""
    tokens = sum(weight * data.count(token, 0, size) for token, weight in _JSON_TOKENS)
    has_escapes = data.find(b"\\", 0, size) >= 0
    is_wide = has_escapes or not (data if size == len(data) else data[:size]).isascii()
    may_have_strings = size < len(data) and (has_escapes or data.find(b"BYTES", 0, size) >= 0)
    binary = (len(data) - size) * (_BINARY_STRING_BYTE if may_have_strings else 1)
    return tokens + size * (_WIDE_BYTE if is_wide else _JSON_BYTE) + binary


def of_message(message: bytes) -> int:
    """Return the bytes that decoding takes of an encoded `ModelInferRequest`.

    Raises:
        errors.ApiError: 400, it has too many fields, or breaks off.
    """
    raw = position = 0
    for _ in range(_MAX_FIELDS):
        if position == len(message):
            return raw + (len(message) - raw) * _MESSAGE_BYTE
        tag, position = _varint(message, position)
        if tag & 7 != _LENGTH_DELIMITED:
            raise bad_request("message", "must be a ModelInferRequest", f"a field of wire type {tag & 7}")
        length, position = _varint(message, position)
        position += length
        if position > len(message):
            break
        raw += length if tag >> 3 == _RAW_CONTENTS else 0
    rule = f"must be a ModelInferRequest of at most {_MAX_FIELDS} fields"
    raise bad_request("message", rule, f"{len(message)} bytes")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise bad_request("message", "must be a ModelInferRequest", f"{len(data)} bytes")


def check(needed: int, bound: int) -> None:
    """Check the estimate of a request.

    Raises:
        errors.ApiError: 413, it takes more than the bound.
    """
    if needed > bound:
        rule = (
            f"must be decoded within {bound} bytes of memory (runtimes.request_memory_bytes, or less where "
            "the memory limit is small; binary tensors take the least)"
        )
        raise too_large(rule, needed)
