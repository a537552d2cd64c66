"""Decodes requests and encodes responses of `ModelInfer`. Pure.

The rules for tensors are those of `protocol`. A message has the elements of its tensors in one of two forms:
typed, in the field `contents` of each tensor, or raw, as one element of `raw_input_contents` for each tensor.
A response has the form of its request.
"""

from collections.abc import Mapping
from typing import Any

from serving.runtimes.batching.batches import Outputs
from serving.runtimes.grpc import messages_pb2 as messages
from serving.runtimes.open_inference import protocol, tensors
from serving.runtimes.open_inference.protocol import InferenceRequest
from serving.runtimes.open_inference.tensors import Array, bad_request

_CONTENTS: Mapping[str, str] = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""The field of `InferTensorContents` by datatype; FP16 has none and is always raw."""


def decode(message: messages.ModelInferRequest) -> InferenceRequest:
    """Return the request of a message. The caller checks the model that the message names.

    Raises:
        errors.ApiError: 400; the message has the field, the rule and the value.
    """
    protocol.checked_parameters("parameters", {"parameters": _parameters(message.parameters)})
    is_raw = bool(message.raw_input_contents)
    count = len(message.inputs)
    if is_raw and len(message.raw_input_contents) != count:
        rule = f"must have one element for each of the {count} inputs"
        raise bad_request("raw_input_contents", rule, len(message.raw_input_contents))

    def read_array(index: int, item: dict[str, Any], datatype: str, shape: tuple[int, ...]) -> Array:
        protocol.checked_parameters(f"inputs[{index}].parameters", item)
        read = _raw_array if is_raw else _typed_array
        return read(message, index, datatype, shape)

    inputs = protocol.request_inputs([_input(tensor) for tensor in message.inputs], read_array)
    outputs = [
        {"name": output.name, "parameters": _parameters(output.parameters)} for output in message.outputs
    ]
    requested = protocol.requested_outputs(outputs, default=is_raw)
    return InferenceRequest(message.id, inputs, requested, is_raw)


def encode(outputs: Outputs, *, model: str, version: str, id_: str) -> bytes:
    """Return the encoded response.

    Args:
        outputs: each tensor, and whether it is asked for raw. All tensors are sent raw if one of them is
            asked for raw, or has a datatype without typed contents.
        model: the model's name.
        version: the model's version.
        id_: the request's id.
    """
    response = messages.ModelInferResponse(model_name=model, model_version=version, id=id_)
    is_raw = any(asked_raw or tensor.datatype not in _CONTENTS for tensor, asked_raw in outputs)
    for tensor, _ in outputs:
        output = response.outputs.add(
            name=tensor.name, datatype=tensor.datatype, shape=list(tensor.array.shape)
        )
        if is_raw:
            response.raw_output_contents.append(tensors.to_binary(tensor.array))
        else:
            getattr(output.contents, _CONTENTS[tensor.datatype]).extend(tensors.to_values(tensor.array))
    return bytes(response.SerializeToString())


def _input(tensor: messages.ModelInferRequest.InferInputTensor) -> dict[str, Any]:
    """Return an input in the form that `protocol.request_inputs` reads, without its elements."""
    return {
        "name": tensor.name,
        "datatype": tensor.datatype,
        "shape": list(tensor.shape),
        "parameters": _parameters(tensor.parameters),
    }


def _parameters(parameters: Mapping[str, messages.InferParameter]) -> dict[str, Any]:
    """Return the values of parameters by name; None for a parameter without a value."""
    result = {}
    for name, parameter in parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        result[name] = None if choice is None else getattr(parameter, choice)
    return result


def _raw_array(
    message: messages.ModelInferRequest, index: int, datatype: str, shape: tuple[int, ...]
) -> Array:
    if given := _typed_fields(message.inputs[index]):
        raise bad_request(
            f"inputs[{index}].contents", "must be absent where raw_input_contents is given", given
        )
    raw = memoryview(message.raw_input_contents[index])
    return tensors.from_binary(f"raw_input_contents[{index}]", datatype, shape, raw)


def _typed_array(
    message: messages.ModelInferRequest, index: int, datatype: str, shape: tuple[int, ...]
) -> Array:
    tensor = message.inputs[index]
    expected = _CONTENTS.get(datatype)
    if expected is None:
        rule = f"must have the bytes of every input, as one has datatype {datatype}"
        raise bad_request("raw_input_contents", rule, "no element")
    if set(given := _typed_fields(tensor)) - {expected}:
        raise bad_request(f"inputs[{index}].contents", f"must be {expected} for {datatype}", given)
    field = f"inputs[{index}].contents.{expected}"
    return tensors.from_values(field, datatype, shape, list(getattr(tensor.contents, expected)))


def _typed_fields(tensor: messages.ModelInferRequest.InferInputTensor) -> list[str]:
    """Return the names of the tensor's typed contents that have elements."""
    return [field.name for field, _ in tensor.contents.ListFields()]
