"""Decodes Kubernetes' protobuf form of built-in kinds, which `kubectl create KIND` sends.

Responses are JSON, which every such client accepts. `tools/generate_protobuf_fields.py` makes
`kubernetes_protobuf.json`, the fields of each message, from the Go types. A field has a number in protobuf,
and a name and a type in JSON. A type is one of:

    string, int, bool, bytes    a scalar
    another key of `_DECODERS`  a message with a form of its own in JSON, such as Time; or `any`, not decoded
    any other name              a message, as a JSON object
    *TYPE                       a pointer in Go: a zero is a value, and kept
    []TYPE                      a list: the field occurs once for each item
    {}TYPE                      a map from strings: the field occurs once for each entry

A field without a name in JSON is a message whose members belong to its parent (Go's `json:",inline"`).
Encoding: protobuf.dev/programming-guides/encoding; envelope (`Unknown`, `TypeMeta`):
k8s.io/apimachinery/pkg/runtime/generated.proto.
"""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import orjson

from serving.embedded.apiserver import status_errors
from serving.protobuf import Content, Malformed, content, integer, parts, text

MAGIC = b"k8s\x00"
"""The first bytes of a body; the envelope follows."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Numbers of fields. Unknown, the envelope:
_TYPE_META, _RAW, _CONTENT_ENCODING = 1, 2, 3
# TypeMeta:
_API_VERSION, _KIND = 1, 2
# Each entry of a map:
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
# Time and MicroTime:
_SECONDS, _NANOSECONDS = 1, 2
# IntOrString; its type is 1 for a string:
_INT_OR_STRING_TYPE, _INT_VALUE, _STRING_VALUE = 1, 2, 3
# Quantity (its text) and FieldsV1 (its JSON) have one field:
_ONLY_FIELD = 1


class _JsonField(NamedTuple):
    """A field of a message in JSON."""

    name: str
    """Empty if the members of the field's message belong to the parent."""
    type: str


@cache
def table() -> dict[str, dict[int, _JsonField]]:
    """Return the fields of each message: message name → field number → field."""
    source = files(__package__).joinpath("kubernetes_protobuf.json").read_text(encoding="utf-8")
    return {
        message: {int(number): _JsonField(name, type_) for number, (name, type_) in fields.items()}
        for message, fields in json.loads(source).items()
    }


def decode(data: bytes, kind: str) -> dict[str, Any]:
    """Return the JSON object of a body.

    A field that is no pointer is omitted if it is zero, as by Go's `omitempty`: its encoding does not
    distinguish zero from unset.

    Args:
        data: the body: MAGIC and the envelope.
        kind: the kind that the body must have, such as `ConfigMap`: one of `table`, which has all kinds that
            the API server takes in protobuf.

    Raises:
        errors.ApiError: 400 for a malformed body, another kind, or an unknown field.
    """
    if not data.startswith(MAGIC):
        raise status_errors.bad_request("the body is not valid protobuf: it does not begin with k8s\\x00")
    try:
        envelope = dict(parts(data[len(MAGIC) :]))
        type_meta = {number: text(value) for number, value in parts(content(envelope.get(_TYPE_META, b"")))}
        if type_meta.get(_KIND) != kind:
            raise Malformed(f"it has a {type_meta.get(_KIND, '')!r} where {kind!r} is expected")
        if envelope.get(_CONTENT_ENCODING):
            raise Malformed("its content is encoded once more")
        api_version = type_meta.get(_API_VERSION, "")
        return {"apiVersion": api_version, "kind": kind, **_message(kind, envelope.get(_RAW, b""))}
    except (ValueError, OverflowError) as error:
        raise status_errors.bad_request(f"the body is not valid protobuf: {error}") from error


def _message(name: str, data: Content) -> dict[str, Any]:
    """Return the JSON object of an encoded message.

    Raises:
        Malformed: it has an unknown field with a value; one that is zero or empty would change nothing.
    """
    fields = table()[name]
    message: dict[str, Any] = {}
    for number, value in parts(content(data)):
        if number in fields:
            _put(message, fields[number], value)
        elif value:
            raise Malformed(f"{name} has a field of number {number}, which is not known here")
    return message


def _put(message: dict[str, Any], field: _JsonField, value: Content) -> None:
    """Add one occurrence of a field to its message in JSON."""
    name, type_ = field
    if type_.startswith("[]"):
        message.setdefault(name, []).append(_value(type_[2:], value))
    elif type_.startswith("{}"):
        entry = dict(parts(content(value)))
        key = text(entry.get(_ENTRY_KEY, b""))
        message.setdefault(name, {})[key] = _value(type_[2:], entry.get(_ENTRY_VALUE, b""))
    elif not name:
        message |= _message(type_, value)
    elif type_.startswith("*"):
        message[name] = _value(type_[1:], value)
    elif (decoded := _value(type_, value)) not in (None, "", 0, {}):
        message[name] = decoded


def _value(type_: str, value: Content) -> Any:
    """Return the JSON value of a scalar or message; the type has no `*`, `[]` or `{}`."""
    decoder = _DECODERS.get(type_)
    return _message(type_, value) if decoder is None else decoder(value)


def _time(value: Content) -> str | None:
    return _moment(value, "seconds")


def _micro_time(value: Content) -> str | None:
    return _moment(value, "microseconds")


def _moment(value: Content, precision: str) -> str | None:
    """Return a time in RFC 3339, or None for an empty message, which is Go's zero time.

    `precision` is a `timespec` of `datetime.isoformat`.
    """
    numbers = {number: integer(part) for number, part in parts(content(value))}
    if not numbers:
        return None
    since_epoch = timedelta(
        seconds=numbers.get(_SECONDS, 0), microseconds=numbers.get(_NANOSECONDS, 0) // 1000
    )
    moment = _EPOCH + since_epoch
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def _quantity(value: Content) -> str:
    return text(dict(parts(content(value))).get(_ONLY_FIELD, b"")) or "0"


def _int_or_string(value: Content) -> int | str:
    fields = dict(parts(content(value)))
    if integer(fields.get(_INT_OR_STRING_TYPE, 0)):
        return text(fields.get(_STRING_VALUE, b""))
    return integer(fields.get(_INT_VALUE, 0))


def _fields_v1(value: Content) -> Any:
    return orjson.loads(content(dict(parts(content(value))).get(_ONLY_FIELD, b"{}")))


def _not_decoded(_: Content) -> dict[str, Any]:
    """Return an empty object for a message whose content no answer depends on."""
    return {}


_DECODERS: dict[str, Callable[[Content], Any]] = {
    "string": text,
    "int": integer,
    "bool": lambda value: integer(value) != 0,
    "bytes": lambda value: base64.b64encode(content(value)).decode(),
    "Time": _time,
    "MicroTime": _micro_time,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "FieldsV1": _fields_v1,
    "any": _not_decoded,
}
