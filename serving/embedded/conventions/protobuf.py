"""Kubernetes' binary form of built-in kinds, which `kubectl create KIND` sends and does not replace by JSON when refused.

Read only: every client that sends it accepts JSON in return. The fields are in `protobuf.json`, made from the Go
types. Encoding: protobuf.dev/programming-guides/encoding; the envelope: k8s.io/apimachinery/pkg/runtime/generated.proto.
"""

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from serving.embedded.conventions import refusals

MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Part = tuple[int, int | bytes]
"""One field of a message: its number, and a varint's value or the bytes of anything else."""


class _Malformed(ValueError):
    """These bytes are no message of the type asked for."""


@cache
def table() -> dict[str, dict[int, tuple[str, str]]]:
    """Return the messages: for each field number its JSON name and type (tools/generate_protobuf_fields.py)."""
    text = files(__package__).joinpath("protobuf.json").read_text(encoding="utf-8")
    return {
        message: {int(number): (name, type_) for number, (name, type_) in fields.items()}
        for message, fields in json.loads(text).items()
    }


def decode(data: bytes, kind: str) -> dict[str, Any]:
    """Return the JSON object of a body.

    A zero that cannot be told from a field that was not set is left out, as Go's `omitempty` does.

    Raises:
        errors.ApiError: 400, it is malformed, not of this kind, or has fields that are not known here.
    """
    if not data.startswith(MAGIC):
        raise refusals.bad_request("the body is not valid protobuf: it does not begin with k8s\\x00")
    try:
        envelope = dict(_parts(data[len(MAGIC) :]))
        meta = {number: _text(value) for number, value in _parts(_content(envelope.get(1, b"")))}
        if meta.get(2) != kind:
            raise _Malformed(f"it has a {meta.get(2, '')!r} where {kind!r} is expected")
        if envelope.get(3):
            raise _Malformed("its content is encoded once more")
        return {"apiVersion": meta.get(1, ""), "kind": kind, **_message(kind, envelope.get(2, b""))}
    except (ValueError, OverflowError) as error:
        raise refusals.bad_request(f"the body is not valid protobuf: {error}") from error


def _message(name: str, data: int | bytes) -> dict[str, Any]:
    fields = table()[name]
    found: dict[str, Any] = {}
    for number, value in _parts(_content(data)):
        if number in fields:
            _put(found, *fields[number], value)
        elif value:
            raise _Malformed(f"{name} has a field of number {number}, which is not known here")
    return found


def _put(found: dict[str, Any], name: str, type_: str, value: int | bytes) -> None:
    if type_.startswith("[]"):
        found.setdefault(name, []).append(_value(type_[2:], value))
    elif type_.startswith("{}"):
        entry = dict(_parts(_content(value)))
        found.setdefault(name, {})[_text(entry.get(1, b""))] = _value(type_[2:], entry.get(2, b""))
    elif not name:
        found |= _message(type_, value)
    elif type_.startswith("*"):
        found[name] = _value(type_[1:], value)
    elif (plain := _value(type_, value)) not in (None, "", 0, {}):
        found[name] = plain


def _value(type_: str, value: int | bytes) -> Any:
    own = _OWN_FORMS.get(type_)
    return _message(type_, value) if own is None else own(value)


def _content(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _Malformed("a number stands where a message or text is expected")
    return value


def _text(value: int | bytes) -> str:
    return _content(value).decode()


def _int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise _Malformed("text stands where a number is expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def _time(value: int | bytes) -> str | None:
    return _moment(value, "seconds")


def _micro_time(value: int | bytes) -> str | None:
    return _moment(value, "microseconds")


def _moment(value: int | bytes, precision: str) -> str | None:
    parts = {number: _int(part) for number, part in _parts(_content(value))}
    if not parts:
        return None
    moment = _EPOCH + timedelta(seconds=parts.get(1, 0), microseconds=parts.get(2, 0) // 1000)
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def _quantity(value: int | bytes) -> str:
    return _text(dict(_parts(_content(value))).get(1, b"")) or "0"


def _int_or_string(value: int | bytes) -> int | str:
    parts = dict(_parts(_content(value)))
    return _text(parts.get(3, b"")) if _int(parts.get(1, 0)) else _int(parts.get(2, 0))


def _known_by_name(_: int | bytes) -> dict[str, Any]:
    return {}


_OWN_FORMS: dict[str, Callable[[int | bytes], Any]] = {
    "string": _text, "int": _int, "bool": lambda value: _int(value) != 0,
    "bytes": lambda value: base64.b64encode(_content(value)).decode(),
    "Time": _time, "MicroTime": _micro_time, "Quantity": _quantity, "IntOrString": _int_or_string,
    "FieldsV1": lambda value: orjson.loads(_content(dict(_parts(_content(value))).get(1, b"{}"))),
    "any": _known_by_name,
}  # fmt: skip


def _parts(data: bytes) -> Iterator[Part]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        sort = tag & 7
        if sort == _VARINT:
            number, at = _varint(data, at)
            yield tag >> 3, number
            continue
        if sort == _BYTES:
            size, at = _varint(data, at)
        elif sort in (_FIXED64, _FIXED32):
            size = 8 if sort == _FIXED64 else 4
        else:
            raise _Malformed(f"a field has the unknown wire type {sort}")
        if size > len(data) - at:
            raise _Malformed("it ends early")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _Malformed("it ends early")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise _Malformed("a number has more than ten bytes")
