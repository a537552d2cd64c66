"""Compares a request with the inputs and outputs of a model, alike for every framework. Pure."""

from collections.abc import Sequence

from serving.images.documents.output_manifest import Input
from serving.runtimes.model import ModelOutput
from serving.runtimes.open_inference.protocol import InferenceRequest, RequestedOutput, Tensor
from serving.runtimes.open_inference.tensors import Array, bad_request


def arrays(request: InferenceRequest, inputs: Sequence[Input]) -> list[Array]:
    """Return the request's arrays in the order of `inputs`.

    Raises:
        errors.ApiError: 400, a tensor, datatype or shape that the model does not take; the message has the
            field, the rule and the value.
    """
    if len(request.inputs) != len(inputs):
        requested = [tensor.name for tensor in request.inputs]
        names = ", ".join(declared.name for declared in inputs)
        raise bad_request(
            "inputs", "must be one tensor" if len(inputs) == 1 else f"must be {names}", requested
        )
    # The parser refuses a name that occurs twice: with equal counts, known names are all names.
    by_name = {declared.name: declared for declared in inputs}
    array_by_name = {}
    for i, tensor in enumerate(request.inputs):
        if tensor.name not in by_name:
            rule = f"must be {' or '.join(repr(name) for name in by_name)}"
            raise bad_request(f"inputs[{i}].name", rule, tensor.name)
        _check(f"inputs[{i}]", tensor, by_name[tensor.name])
        array_by_name[tensor.name] = tensor.array
    return [array_by_name[declared.name] for declared in inputs]


def _check(field: str, tensor: Tensor, declared: Input) -> None:
    if tensor.datatype != declared.datatype:
        raise bad_request(f"{field}.datatype", f"must be {declared.datatype}", tensor.datatype)
    shape = tensor.array.shape
    fits = len(shape) == len(declared.shape) and all(
        expected in {-1, size} for expected, size in zip(declared.shape, shape, strict=True)
    )
    if not fits or 0 in shape:
        raise bad_request(
            f"{field}.shape", f"must be {list(declared.shape)}, where -1 is 1 or more", list(shape)
        )


def requested_outputs(
    request: InferenceRequest, outputs: Sequence[ModelOutput]
) -> tuple[RequestedOutput, ...]:
    """Return the outputs that the request asks for: all of them where it names none.

    Raises:
        errors.ApiError: 400, an output that the model does not have.
    """
    names = [output.name for output in outputs]
    if request.outputs is None:
        return tuple(RequestedOutput(name, request.binary) for name in names)
    for i, output in enumerate(request.outputs):
        if output.name not in names:
            raise bad_request(f"outputs[{i}].name", f"must be one of {', '.join(names)}", output.name)
    return request.outputs


def rows(request: InferenceRequest) -> int:
    """Return the number of rows of a request: the largest first dimension of its inputs, which differ where a
    model takes it; 0 if all inputs are scalars.
    """
    return max((tensor.array.shape[0] for tensor in request.inputs if tensor.array.shape), default=0)
