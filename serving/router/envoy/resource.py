"""Resources as Envoy receives them: a message in a google.protobuf.Any, with its digest as version."""

import hashlib
from dataclasses import dataclass

from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message

from serving.router.envoy import messages_pb2

NO_ENDPOINTS = "empty"
"""The version of an empty set of endpoints, so that a version shows whether a cluster can serve."""
_DIGEST_BYTES = 12


@dataclass(frozen=True)
class Resource:
    """A resource's version, and its content as an encoded google.protobuf.Any."""

    version: str
    content: bytes


def type_url(kind: type[Message]) -> str:
    """Return the type URL of a message that has the option `type_name`."""
    options = kind.DESCRIPTOR.GetOptions()
    name: str = options.Extensions[messages_pb2.type_name]  # type: ignore[index, unused-ignore]
    return f"type.googleapis.com/{name}"


def encode(message: Message) -> bytes:
    """Return the binary form, which is the same for equal messages."""
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def pack(message: Message) -> any_pb2.Any:
    """Return a message that has the option `type_name` in a google.protobuf.Any."""
    return any_pb2.Any(type_url=type_url(type(message)), value=encode(message))


def resource(message: Message) -> Resource:
    """Return a message that has the option `type_name` as a resource."""
    return _versioned(pack(message))


def encoded_resource(kind: type[Message], value: bytes) -> Resource:
    """Return an encoded message of this type as a resource."""
    return _versioned(any_pb2.Any(type_url=type_url(kind), value=value))


def duration(seconds: float) -> duration_pb2.Duration:
    """Return a google.protobuf.Duration."""
    message = duration_pb2.Duration()
    message.FromNanoseconds(round(seconds * 1_000_000_000))
    return message


def _versioned(content: any_pb2.Any) -> Resource:
    encoded = encode(content)
    return Resource(hashlib.blake2b(encoded, digest_size=_DIGEST_BYTES).hexdigest(), encoded)
