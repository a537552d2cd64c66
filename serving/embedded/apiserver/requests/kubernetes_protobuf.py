"""Decodes Kubernetes' protobuf form of built-in kinds, which `kubectl create KIND` sends.

Responses are JSON, which every such client accepts. The fields are in `kubernetes_protobuf.json`, made from
the Go types. Encoding: protobuf.dev/programming-guides/encoding; the envelope:
k8s.io/apimachinery/pkg/runtime/generated.proto.
"""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from serving.embedded.apiserver import status_errors
from serving.protobuf import Content, Malformed, content, integer, parts, text

MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@cache
def table() -> dict[str, dict[int, tuple[str, str]]]:
    """Return the JSON name and type of each field of each message (tools/generate_protobuf_fields.py)."""
    source = files(__package__).joinpath("kubernetes_protobuf.json").read_text(encoding="utf-8")
    return {
        message: {int(number): (name, type_) for number, (name, type_) in fields.items()}
        for message, fields in json.loads(source).items()
    }


def decode(data: bytes, kind: str) -> dict[str, Any]:
    """Return the JSON object of a body.

    A zero that the encoding does not distinguish from an unset field is omitted, as by Go's `omitempty`.

    Raises:
        errors.ApiError: 400 for a malformed body, another kind, or an unknown field.
    """
    if not data.startswith(MAGIC):
        raise status_errors.bad_request("the body is not valid protobuf: it does not begin with k8s\\x00")
    try:
        envelope = dict(parts(data[len(MAGIC) :]))
        meta = {number: text(value) for number, value in parts(content(envelope.get(1, b"")))}
        if meta.get(2) != kind:
            raise Malformed(f"it has a {meta.get(2, '')!r} where {kind!r} is expected")
        if envelope.get(3):
            raise Malformed("its content is encoded once more")
        return {"apiVersion": meta.get(1, ""), "kind": kind, **_message(kind, envelope.get(2, b""))}
    except (ValueError, OverflowError) as error:
        raise status_errors.bad_request(f"the body is not valid protobuf: {error}") from error


def _message(name: str, data: Content) -> dict[str, Any]:
    fields = table()[name]
    message: dict[str, Any] = {}
    for number, value in parts(content(data)):
        if number in fields:
            _put(message, *fields[number], value)
        elif value:
            raise Malformed(f"{name} has a field of number {number}, which is not known here")
    return message


def _put(message: dict[str, Any], name: str, type_: str, value: Content) -> None:
    if type_.startswith("[]"):
        message.setdefault(name, []).append(_value(type_[2:], value))
    elif type_.startswith("{}"):
        entry = dict(parts(content(value)))
        message.setdefault(name, {})[text(entry.get(1, b""))] = _value(type_[2:], entry.get(2, b""))
    elif not name:
        message |= _message(type_, value)
    elif type_.startswith("*"):
        message[name] = _value(type_[1:], value)
    elif (plain := _value(type_, value)) not in (None, "", 0, {}):
        message[name] = plain


def _value(type_: str, value: Content) -> Any:
    decoder = _DECODERS.get(type_)
    return _message(type_, value) if decoder is None else decoder(value)


def _time(value: Content) -> str | None:
    return _moment(value, "seconds")


def _micro_time(value: Content) -> str | None:
    return _moment(value, "microseconds")


def _moment(value: Content, precision: str) -> str | None:
    numbers = {number: integer(part) for number, part in parts(content(value))}
    if not numbers:
        return None
    moment = _EPOCH + timedelta(seconds=numbers.get(1, 0), microseconds=numbers.get(2, 0) // 1000)
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def _quantity(value: Content) -> str:
    return text(dict(parts(content(value))).get(1, b"")) or "0"


def _int_or_string(value: Content) -> int | str:
    fields = dict(parts(content(value)))
    return text(fields.get(3, b"")) if integer(fields.get(1, 0)) else integer(fields.get(2, 0))


def _known_by_name(_: Content) -> dict[str, Any]:
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
    "FieldsV1": lambda value: orjson.loads(content(dict(parts(content(value))).get(1, b"{}"))),
    "any": _known_by_name,
}
