"""JSON, binary and typed forms of the tensors of the Open Inference Protocol. Pure.

https://github.com/open-inference/open-inference-protocol (tensor data types) and the binary tensor extension,
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md: numbers
are little-endian and row-major, BOOL is one byte, and each element of BYTES is a 4-byte length and its bytes.
"""

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving import errors

Array = NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}
_LENGTH = struct.Struct("<I")
_MAX_RANK = 8
"""Most dimensions of a tensor, as of a model's inputs in `slipway.json`."""
_JSON_TYPES: dict[str, set[type]] = {"b": {bool}, "u": {int}, "i": {int}, "f": {int, float}, "O": {str}}
"""Python's types of the elements in JSON, by the kind of the array's dtype."""
TOO_LARGE = 413
"""HTTP status of a body above its bound."""


def bad_request(field: str, rule: str, value: object) -> errors.ApiError:
    """Return the error of status 400 for a broken rule: the field's path, the rule and the value."""
    shown = repr(value)
    message = f"{field}: {rule}, got {shown if len(shown) <= 120 else shown[:117] + '...'}"
    return errors.ApiError(400, "BadRequest", message, [errors.Cause(field, rule)])


def too_large(rule: str, value: object) -> errors.ApiError:
    """Return the error of status 413 for a body above the bound."""
    refused = bad_request("body", rule, value)
    return errors.ApiError(TOO_LARGE, "RequestEntityTooLarge", refused.message, refused.causes)


def datatype_of(array: Array) -> str:
    """Return the protocol's datatype of an array; strings and objects are BYTES.

    Raises:
        errors.Permanent: `UnsupportedModel`, no datatype holds these elements.
    """
    if array.dtype.kind in "OUS":
        return "BYTES"
    little_endian = array.dtype.newbyteorder("<")
    for name, dtype in DTYPES.items():
        if dtype == little_endian:
            return name
    raise errors.Permanent("UnsupportedModel", f"no tensor datatype holds elements of type {array.dtype}")


def check_shape(field: str, shape: object) -> tuple[int, ...]:
    """Return the shape as a tuple.

    Raises:
        errors.ApiError: 400, it is not a list of at most 8 non-negative integers.
    """
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise bad_request(field, "must be a list of integers that are 0 or more", shape)
    if len(shape) > _MAX_RANK:
        raise bad_request(field, f"must have at most {_MAX_RANK} dimensions", len(shape))
    return tuple(shape)


def _shaped(field: str, array: Array, shape: Sequence[int]) -> Array:
    """Return a flat array in a shape with as many elements.

    Raises:
        errors.ApiError: 400, NumPy has no array of this shape. A shape with a 0 has no elements, so that the
            number of elements does not bound its other dimensions.
    """
    try:
        return array.reshape(tuple(shape))
    except (ValueError, OverflowError) as error:
        raise bad_request(field, "must have a shape that an array can have", list(shape)) from error


def from_json(field: str, datatype: str, shape: Sequence[int], data: object) -> Array:
    """Return a tensor from its JSON `data`: flat or nested, row-major.

    Raises:
        errors.ApiError: 400, with the field's path.
    """
    if not isinstance(data, list):
        raise bad_request(field, "must be a list", data)
    values = _flat(field, tuple(shape), data)
    _check_count(field, shape, values)
    allowed = _JSON_TYPES[DTYPES[datatype].kind]
    if not set(map(type, values)) <= allowed:
        wrong = next(value for value in values if type(value) not in allowed)
        raise bad_request(field, f"must be elements of {datatype}", wrong)
    if datatype == "BYTES":
        try:
            values = [value.encode() for value in values]
        except UnicodeEncodeError as error:
            raise bad_request(field, "must be in the range of BYTES", str(error)) from error
    return from_values(field, datatype, shape, values)


def from_values(field: str, datatype: str, shape: Sequence[int], values: Sequence[Any]) -> Array:
    """Return a tensor from its elements, flat and row-major, of Python's types; those of BYTES are `bytes`.

    Raises:
        errors.ApiError: 400, with the field's path.
    """
    _check_count(field, shape, values)
    try:
        if datatype == "BYTES":
            array = np.empty(len(values), dtype=object)
            array[:] = values
        else:
            with np.errstate(over="raise"):
                array = np.array(values, dtype=DTYPES[datatype])
    except (OverflowError, FloatingPointError) as error:
        raise bad_request(field, f"must be in the range of {datatype}", str(error)) from error
    return _shaped(field, array, shape)


def _check_count(field: str, shape: Sequence[int], values: Sequence[Any]) -> None:
    count = math.prod(shape)
    if len(values) != count:
        raise bad_request(field, f"must have the {count} elements that shape {list(shape)} says", len(values))


def _flat(field: str, shape: tuple[int, ...], data: list[Any]) -> list[Any]:
    """Return the elements of `data`, which are flat already, or in nested lists of the sizes of `shape`."""
    values = data
    for depth, size in enumerate(shape[1:], start=1):
        if not any(isinstance(value, list) for value in values):
            break
        if not all(isinstance(value, list) and len(value) == size for value in values):
            raise bad_request(
                field, f"must be flat or nested as shape {list(shape)}", f"depth {depth} of other sizes"
            )
        values = [item for value in values for item in value]
    return values


def from_binary(field: str, datatype: str, shape: Sequence[int], raw: memoryview) -> Array:
    """Return a tensor from its binary form, without copying numbers.

    Raises:
        errors.ApiError: 400, with the field's path.
    """
    count = math.prod(shape)
    if datatype == "BYTES":
        return _shaped(field, _strings_from_binary(field, count, raw), shape)
    dtype = DTYPES[datatype]
    if len(raw) != count * dtype.itemsize:
        rule = f"must be the {count * dtype.itemsize} bytes of {datatype} with shape {list(shape)}"
        raise bad_request(field, rule, len(raw))
    if datatype == "BOOL" and count and int(np.frombuffer(raw, np.uint8).max()) > 1:
        raise bad_request(field, "must be bytes 0 and 1", "another byte")
    return _shaped(field, np.frombuffer(raw, dtype), shape)


def _strings_from_binary(field: str, count: int, raw: memoryview) -> Array:
    """Return the elements of a tensor of BYTES, flat, from its binary form."""
    # Each element takes at least its length: check before allocating the elements that the shape claims.
    if count * _LENGTH.size > len(raw):
        raise bad_request(
            field, f"must hold {count} elements, each a 4-byte length and its bytes", f"{len(raw)} bytes"
        )
    array = np.empty(count, dtype=object)
    offset = 0
    for i in range(count):
        if offset + _LENGTH.size > len(raw):
            raise bad_request(field, f"must hold {count} elements", f"{i} before the bytes end")
        (length,) = _LENGTH.unpack_from(raw, offset)
        offset += _LENGTH.size
        if offset + length > len(raw):
            raise bad_request(field, f"element {i} of {length} bytes must fit", f"{len(raw) - offset} left")
        array[i] = bytes(raw[offset : offset + length])
        offset += length
    if offset != len(raw):
        raise bad_request(field, f"must end after {count} elements", f"{len(raw) - offset} more bytes")
    return array


def to_binary(array: Array) -> bytes:
    """Return the binary form."""
    if datatype_of(array) == "BYTES":
        items = to_values(array)
        return b"".join(part for item in items for part in (_LENGTH.pack(len(item)), item))
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()


def to_json(field: str, array: Array) -> list[Any]:
    """Return the flat, row-major JSON form.

    Raises:
        errors.ApiError: 400, JSON cannot represent a value; the message says to request binary data.
    """
    values = to_values(array)
    if datatype_of(array) == "BYTES":
        try:
            return [value.decode() for value in values]
        except UnicodeDecodeError as error:
            raise bad_request(field, "is not UTF-8: ask for it with binary_data", str(error)) from error
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise bad_request(
            field, "JSON has no NaN or infinity: ask for it with binary_data", "a value that is not finite"
        )
    return values


def to_values(array: Array) -> list[Any]:
    """Return the elements, flat and row-major, as Python's types; those of BYTES are `bytes`."""
    values: list[Any] = array.ravel().tolist()
    return [_as_bytes(value) for value in values] if datatype_of(array) == "BYTES" else values


def _as_bytes(item: object) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()
