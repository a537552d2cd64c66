"""The frame of a gRPC message in a body: a flag and the message's length before the message. Pure.

https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md (Length-Prefixed-Message)
"""

import struct

from serving.runtimes import compression
from serving.runtimes.tensors import bad

_PREFIX = struct.Struct(">BI")


def message_of(body: bytes, encoding: str, limit: int) -> bytes:
    """Return the only message of a request's body.

    Args:
        body: the complete body.
        encoding: value of `grpc-encoding`, the compression of messages that say they are compressed.
        limit: the most bytes of the message when decompressed.

    Raises:
        errors.ApiError: 400, it is not one complete message, or its compression is not supported.
    """
    if len(body) < _PREFIX.size:
        raise bad("body", f"must be one gRPC message of {_PREFIX.size} bytes or more", f"{len(body)} bytes")
    is_compressed, length = _PREFIX.unpack_from(body)
    if len(body) != _PREFIX.size + length:
        raise bad("body", f"must be one gRPC message of {length} bytes", f"{len(body) - _PREFIX.size} bytes")
    message = body[_PREFIX.size :]
    if not is_compressed:
        return message
    return compression.decompressed(message, encoding, limit, header="grpc-encoding")


def framed(message: bytes) -> bytes:
    """Return the body of a response with this message."""
    return _PREFIX.pack(0, len(message)) + message
