"""The frame of a gRPC message in a body: a flag and the message's length before the message. Pure.

https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md (Length-Prefixed-Message)
"""

import struct

from serving.runtimes.open_inference import compression
from serving.runtimes.open_inference.tensors import bad_request

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
    message, encoding = _framed(body, encoding)
    return compression.decompressed(message, encoding, limit, header="grpc-encoding")


def message_within(body: bytes, encoding: str, most: int) -> bytes | None:
    """Return the only message of a request's body; None if it is of more than `most` bytes.

    Raises:
        errors.ApiError: 400, as `message_of`.
    """
    if len(body) > _PREFIX.size + most:
        return None
    message, encoding = _framed(body, encoding)
    return compression.decompressed_within(message, encoding, most, header="grpc-encoding")


def _framed(body: bytes, encoding: str) -> tuple[bytes, str]:
    """Return the message as it was received, and its encoding."""
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
