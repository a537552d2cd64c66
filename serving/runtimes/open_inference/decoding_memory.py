"""Estimates, before a request is decoded, the memory that decoding takes. Pure.

A parser makes up to 50 bytes of objects from one byte of JSON, so a limit of a body's size does not limit
memory. The estimates exceed the memory that orjson, protobuf and NumPy take for every tested body. An
estimate of 10 MB of JSON takes 5 ms.
"""

from serving.protobuf import Malformed, decode_varint
from serving.runtimes.open_inference.tensors import bad_request, too_large

SMALL_BYTES = 64 * 1024
"""A body up to this size is decoded without an estimate: at worst it takes 4 MiB, and some milliseconds."""

# Bytes of memory for each byte of a part of a request:
_JSON_BYTE = 3
"""JSON: the parser's copy, the Python string, and the string encoded again."""
_WIDE_JSON_BYTE = 6
"""JSON with non-ASCII characters, one of which can make Python store a string in four bytes per character."""
_JSON_TOKENS = ((b",", 100), (b'"', 60), (b"[", 300), (b"{", 1000))
"""Added for each such byte of JSON: the value after a comma, a string (half of it for each quote), a list and
an object. The figures of a list and an object are twice their memory, as each takes five times the time of a
number; no request has many."""
_BINARY_STRING_BYTE = 12
"""A binary tensor of BYTES: a string of two bytes takes six bytes in the body, and 60 as an object."""
_MESSAGE_BYTE = 32
"""A gRPC message without its raw contents: parameters and short strings take the most."""

_MAX_FIELDS = 1024
"""Limit of a message's fields, each of which takes 280 bytes even if it is empty: far above the 64 inputs,
outputs and raw contents of a valid one."""
_RAW_CONTENTS = 7
"""Number of the field `raw_input_contents`."""
_LENGTH_DELIMITED = 2
"""Wire type of strings, bytes and messages."""


def of_json(body: bytes, json_size: int) -> int:
    """Return the bytes of memory for decoding a body of `json_size` bytes of JSON, then binary tensors."""
    tokens = sum(weight * body.count(token, 0, json_size) for token, weight in _JSON_TOKENS)
    # An escape may stand for a non-ASCII character, and for a letter of the datatype BYTES.
    has_escapes = body.find(b"\\", 0, json_size) >= 0
    is_wide = has_escapes or not (body if json_size == len(body) else body[:json_size]).isascii()
    may_have_strings = json_size < len(body) and (has_escapes or body.find(b"BYTES", 0, json_size) >= 0)
    binary = (len(body) - json_size) * (_BINARY_STRING_BYTE if may_have_strings else 1)
    return tokens + json_size * (_WIDE_JSON_BYTE if is_wide else _JSON_BYTE) + binary


def of_message(message: bytes) -> int:
    """Return the bytes of memory that decoding an encoded `ModelInferRequest` takes.

    Raises:
        errors.ApiError: 400, the message has too many fields, or is truncated.
    """
    raw_size = position = 0
    try:
        for _ in range(_MAX_FIELDS + 1):  # once more, to see the end of the last field
            if position == len(message):
                return raw_size + (len(message) - raw_size) * _MESSAGE_BYTE
            tag, position = decode_varint(message, position)
            field, wire_type = tag >> 3, tag & 7
            if wire_type != _LENGTH_DELIMITED:
                field_type = f"a field of wire type {wire_type}"
                raise bad_request("message", "must be a ModelInferRequest", field_type)
            length, position = decode_varint(message, position)
            position += length
            if position > len(message):
                break
            raw_size += length if field == _RAW_CONTENTS else 0
    except Malformed:
        raise bad_request("message", "must be a ModelInferRequest", f"{len(message)} bytes") from None
    rule = f"must be a ModelInferRequest of at most {_MAX_FIELDS} fields"
    raise bad_request("message", rule, f"{len(message)} bytes")


def check(needed: int, bound: int) -> None:
    """Check the estimate of a request, in bytes.

    Raises:
        errors.ApiError: 413, the request needs more than the bound.
    """
    if needed > bound:
        rule = (
            f"must be decoded within {bound} bytes of memory (runtimes.request_memory_bytes, or less where "
            "the memory limit is small; binary tensors take the least)"
        )
        raise too_large(rule, needed)
