"""The frame of a gRPC message in a body: a prefix of a flag and the message's length. Pure.

https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md (Length-Prefixed-Message)
"""

import struct

from serving.runtimes.open_inference import compression
from serving.runtimes.open_inference.tensors import bad_request

_PREFIX = struct.Struct(">BI")
"""Flag, 1 for a compressed message, and the message's length in bytes."""


def message_of(body: bytes, encoding: str, limit: int) -> bytes:
    """Return the only message of a request's body.

    Args:
        body: the complete body.
        encoding: value of `grpc-encoding`, the compression of a message whose flag is set.
        limit: the most bytes of the message when decompressed.

    Raises:
        errors.ApiError: 400, the body is not one complete message, or its compression is not supported; 413,
            the message is larger than `limit`.
    """
    message, encoding = _unframed(body, encoding)
    return compression.decompressed(message, encoding, limit, header="grpc-encoding")


def message_within(body: bytes, encoding: str, limit: int) -> bytes | None:
    """Return the only message of a request's body; None if it has more than `limit` bytes, as received or
    decompressed.

    Raises:
        errors.ApiError: 400, as `message_of`.
    """
    if len(body) > _PREFIX.size + limit:
        return None
    message, encoding = _unframed(body, encoding)
    return compression.decompressed_within(message, encoding, limit, header="grpc-encoding")


def _unframed(body: bytes, encoding: str) -> tuple[bytes, str]:
    """Return the message without its prefix, and its encoding: empty if it is not compressed."""
    if len(body) < _PREFIX.size:
        raise bad_request(
            "body", f"must be one gRPC message of {_PREFIX.size} bytes or more", f"{len(body)} bytes"
        )
    is_compressed, length = _PREFIX.unpack_from(body)
    if len(body) != _PREFIX.size + length:
        raise bad_request(
            "body", f"must be one gRPC message of {length} bytes", f"{len(body) - _PREFIX.size} bytes"
        )
    return body[_PREFIX.size :], encoding if is_compressed else ""


def framed(message: bytes) -> bytes:
    """Return the body of a response with this message."""
    return _PREFIX.pack(0, len(message)) + message
