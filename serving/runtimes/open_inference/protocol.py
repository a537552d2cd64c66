"""Decodes requests and encodes responses of `/v2/models/.../infer`. Pure.

Supports the JSON form and the binary tensor extension, also both in one request; `tensors` names their
specifications. Independent of models. `grpc.codec` applies the same rules to gRPC's messages.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from serving import errors
from serving.runtimes.open_inference import decoding_memory, tensors
from serving.runtimes.open_inference.tensors import Array, bad_request

JSON_LENGTH_HEADER = "inference-header-content-length"
"""Name of the header that has the number of bytes of JSON before the binary tensors."""
MAX_TENSORS = 64
"""Most inputs or outputs of a request, far above those of real models."""
_UNSUPPORTED = (
    "sequence_id",
    "sequence_start",
    "sequence_end",
    "shared_memory_region",
    "shared_memory_byte_size",
    "shared_memory_offset",
    "classification",
)
"""Standard parameters that this server does not support: refused, as ignoring them would change the
result."""


@dataclass(frozen=True)
class Tensor:
    """A named tensor; its shape is the array's."""

    name: str
    datatype: str
    array: Array


@dataclass(frozen=True)
class RequestedOutput:
    """An output that a request asks for."""

    name: str
    binary: bool
    """Whether it is sent as binary instead of JSON."""


@dataclass(frozen=True)
class InferenceRequest:
    """A decoded inference request."""

    id: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[RequestedOutput, ...] | None
    """None: all outputs, in the form of `binary`."""
    binary: bool
    """Where `outputs` is None: whether all outputs are sent as binary instead of JSON."""


def decode(body: bytes, header_length: str | None) -> InferenceRequest:
    """Parse an inference request.

    Args:
        body: the complete body, decompressed.
        header_length: value of `Inference-Header-Content-Length`; None where the body is JSON alone.

    Raises:
        errors.ApiError: 400; the message has the field, the rule and the value.
    """
    json_size = _json_size(body, header_length)
    raw = _parse(body[:json_size])
    parameters = checked_parameters("parameters", raw)
    id_ = raw.get("id", "")
    if not isinstance(id_, str):
        raise bad_request("id", "must be a string", id_)
    data = _TensorData(memoryview(body)[json_size:])
    inputs = request_inputs(raw.get("inputs"), data.array)
    expected_size = json_size + data.used
    if expected_size != len(body):
        raise bad_request(
            "body", f"must end after {expected_size} bytes of JSON and binary_data_size", len(body)
        )
    binary = _flag("parameters.binary_data_output", parameters.get("binary_data_output", False))
    return InferenceRequest(id_, inputs, requested_outputs(raw.get("outputs"), default=binary), binary)


def needed_memory(body: bytes, header_length: str | None) -> int:
    """Return the estimated bytes that `decode` takes.

    Raises:
        errors.ApiError: 400, the header is no length within the body.
    """
    return decoding_memory.of_json(body, _json_size(body, header_length))


def _json_size(body: bytes, header_length: str | None) -> int:
    """Return the bytes of the body that are JSON."""
    if header_length is None:
        return len(body)
    # 12 digits are above the size of any body, and `int` fails on thousands of digits.
    if not (header_length.isascii() and header_length.isdigit()) or len(header_length) > 12:
        raise bad_request("Inference-Header-Content-Length", "must be a number of bytes", header_length)
    if int(header_length) > len(body):
        raise bad_request(
            "Inference-Header-Content-Length", f"must be at most the body's {len(body)} bytes", header_length
        )
    return int(header_length)


def _parse(data: bytes) -> dict[str, Any]:
    try:
        raw = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise errors.ApiError(400, "BadRequest", f"body: must be JSON: {error}") from error
    if not isinstance(raw, dict):
        raise bad_request("body", "must be a JSON object", raw)
    return raw


def checked_parameters(field: str, item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a request, an input or an output.

    Raises:
        errors.ApiError: 400, a parameter that this server does not support.
    """
    parameters = item.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise bad_request(field, "must be an object", parameters)
    for name in _UNSUPPORTED:
        if parameters.get(name):
            raise bad_request(f"{field}.{name}", "is not supported by this server", parameters[name])
    return parameters


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise bad_request(field, "must be true or false", value)
    return value


def _named(field: str, items: object) -> list[dict[str, Any]]:
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_TENSORS:
        raise bad_request(field, f"must be a list of 1 to {MAX_TENSORS} tensors", items)
    names: set[str] = set()
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            raise bad_request(f"{field}[{i}]", "must be an object", item)
        name = item.get("name")
        if not isinstance(name, str) or not name:
            raise bad_request(f"{field}[{i}].name", "must be a non-empty string", name)
        if name in names:
            raise bad_request(f"{field}[{i}].name", "must not be given twice", name)
        names.add(name)
    return items


ReadArray = Callable[[int, dict[str, Any], str, tuple[int, ...]], Array]
"""Returns the array of an input: its index, the input, its datatype and its shape."""


def request_inputs(items: object, read_array: ReadArray) -> tuple[Tensor, ...]:
    """Return the input tensors.

    Args:
        items: `inputs` of a request in JSON.
        read_array: is called with each input in turn, once its name, datatype and shape are checked.

    Raises:
        errors.ApiError: 400, with the field's path.
    """
    inputs = []
    for i, item in enumerate(_named("inputs", items)):
        field = f"inputs[{i}]"
        datatype = item.get("datatype")
        if not isinstance(datatype, str) or datatype not in tensors.DTYPES:
            raise bad_request(f"{field}.datatype", f"must be one of {', '.join(tensors.DTYPES)}", datatype)
        shape = tensors.check_shape(f"{field}.shape", item.get("shape"))
        inputs.append(Tensor(item["name"], datatype, read_array(i, item, datatype, shape)))
    return tuple(inputs)


class _TensorData:
    """The data of the inputs: each in JSON, or in its part of the binary data that follows the JSON."""

    def __init__(self, binary: memoryview) -> None:
        self._binary = binary
        self.used = 0
        """Bytes of the binary data that belong to an input."""

    def array(self, index: int, item: dict[str, Any], datatype: str, shape: tuple[int, ...]) -> Array:
        """Read the array of an input (`ReadArray`). The binary data are in the order of the inputs, and calls
        must be too.
        """
        field = f"inputs[{index}]"
        size = checked_parameters(f"{field}.parameters", item).get("binary_data_size")
        if size is None:
            return tensors.from_json(f"{field}.data", datatype, shape, item.get("data"))
        part = _part(f"{field}.parameters.binary_data_size", size, self._binary[self.used :])
        if "data" in item:
            raise bad_request(f"{field}.data", "must be absent where binary_data_size is given", item["data"])
        self.used += len(part)
        return tensors.from_binary(f"{field}.parameters.binary_data_size", datatype, shape, part)


def _part(field: str, size: object, remaining: memoryview) -> memoryview:
    if type(size) is not int or size < 0:
        raise bad_request(field, "must be an integer of 0 or more", size)
    if size > len(remaining):
        raise bad_request(
            field, f"must be at most the {len(remaining)} bytes that are left of the body", size
        )
    return remaining[:size]


def requested_outputs(items: object, *, default: bool) -> tuple[RequestedOutput, ...] | None:
    """Return the outputs that a request asks for; None where it names none.

    Args:
        items: `outputs` of a request in JSON.
        default: whether an output without the parameter `binary_data` is sent as binary.

    Raises:
        errors.ApiError: 400, with the field's path.
    """
    if items is None or items == []:
        return None
    outputs = []
    for i, item in enumerate(_named("outputs", items)):
        field = f"outputs[{i}].parameters"
        binary = checked_parameters(field, item).get("binary_data", default)
        outputs.append(RequestedOutput(item["name"], _flag(f"{field}.binary_data", binary)))
    return tuple(outputs)


def encode(
    outputs: Sequence[tuple[Tensor, bool]], *, model: str, version: str, id_: str
) -> tuple[bytes, int | None]:
    """Return the body, and the length of its JSON; the length is None where no binary tensors follow.

    Args:
        outputs: each tensor, and whether it is sent as binary.
        model: the model's name.
        version: the model's version.
        id_: the request's id; empty for none.

    Raises:
        errors.ApiError: 400, JSON was requested for a tensor that JSON cannot represent.
    """
    items: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for tensor, binary in outputs:
        item: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(tensor.array.shape),
        }
        if binary:
            blobs.append(tensors.to_binary(tensor.array))
            item["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            item["data"] = tensors.to_json(f"outputs[{tensor.name}]", tensor.array)
        items.append(item)
    document = {"model_name": model, "model_version": version, "outputs": items}
    if id_:
        document["id"] = id_
    head = orjson.dumps(document)
    return b"".join((head, *blobs)), len(head) if blobs else None


def error_body(message: str) -> bytes:
    """Return the protocol's error object."""
    return json.dumps({"error": message}).encode()
