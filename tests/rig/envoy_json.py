"""Envoy's messages to and from JSON; an Any is resolved by the option `type_name` of our messages."""

from typing import Any

from google.protobuf import any_pb2, json_format, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from serving.router.envoy import messages_pb2


class _Messages:
    """The part of a descriptor pool that json_format uses."""

    def __init__(self) -> None:
        messages = messages_pb2.DESCRIPTOR.message_types_by_name.values()
        self._by_name = {m.GetOptions().Extensions[messages_pb2.type_name]: m for m in messages}

    def FindMessageTypeByName(self, name: str) -> Descriptor:  # noqa: N802 the name in the pool
        return self._by_name[name]


_MESSAGES = _Messages()


def as_json(message: Message) -> dict[str, Any]:
    """Return a message as JSON with the names of its fields; an Any has its `@type`."""
    return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=_MESSAGES)


def decoded(content: bytes) -> dict[str, Any]:
    """Return an encoded Any as JSON."""
    return as_json(any_pb2.Any.FromString(content))


def parsed(json: dict[str, Any]) -> any_pb2.Any:
    """Return an Any from its JSON.

    Raises:
        json_format.ParseError: a field that our messages do not have.
    """
    return json_format.ParseDict(json, any_pb2.Any(), descriptor_pool=_MESSAGES)


def message_in(packed: any_pb2.Any) -> Message:
    """Return the message in an Any."""
    descriptor = _MESSAGES.FindMessageTypeByName(packed.TypeName())
    message = message_factory.GetMessageClass(descriptor)()
    message.ParseFromString(packed.value)
    return message
