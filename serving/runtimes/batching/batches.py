"""Joins the rows of several requests into one request, and splits its answer again. Pure."""

from collections.abc import Hashable, Sequence

import numpy as np

from serving.images.documents.output_manifest import Input
from serving.runtimes.model import Model, Output
from serving.runtimes.open_inference import signature
from serving.runtimes.open_inference.protocol import InferenceRequest, RequestedOutput, Tensor

Outputs = list[tuple[Tensor, bool]]
"""Outputs, each with whether it is sent as binary."""


def obstacle(inputs: Sequence[Input], outputs: Sequence[Output]) -> str:
    """Return why rows of different requests cannot be joined; empty where they can."""
    for direction, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            if tensor.shape[:1] != (-1,):
                shape = list(tensor.shape)
                return f"{direction} {tensor.name!r} has shape {shape}, and its first dimension is not open"
    return ""


def form(request: InferenceRequest, model: Model) -> tuple[int, Hashable]:
    """Return a request's rows and its form: requests of one form can be joined, None with no other.

    Raises:
        errors.ApiError: 400, an input or output that this model does not have.
    """
    arrays = signature.arrays(request, model.inputs)
    signature.requested_outputs(request, model.outputs)
    rows = {array.shape[0] for array in arrays}
    if len(rows) > 1:
        return max(rows), None
    return rows.pop(), tuple(array.shape[1:] for array in arrays)


def joined(requests: Sequence[InferenceRequest], model: Model) -> InferenceRequest:
    """Return one request with all rows, in order, and every output that any request asks for."""
    columns = zip(*(signature.arrays(request, model.inputs) for request in requests), strict=True)
    inputs = tuple(
        Tensor(declared.name, declared.datatype, np.concatenate(column))
        for declared, column in zip(model.inputs, columns, strict=True)
    )
    requested = {
        output.name for request in requests for output in signature.requested_outputs(request, model.outputs)
    }
    outputs = tuple(
        RequestedOutput(output.name, binary=False) for output in model.outputs if output.name in requested
    )
    return InferenceRequest("", inputs, outputs, binary=False)


def split(answer: Outputs, requests: Sequence[InferenceRequest], model: Model) -> list[Outputs]:
    """Return each request's part of the answer to all of them.

    Raises:
        ValueError: an output has another number of rows than the request.
    """
    sizes = [signature.rows(request) for request in requests]
    tensors = {tensor.name: tensor for tensor, _ in answer}
    for tensor in tensors.values():
        if tensor.array.shape[:1] != (sum(sizes),):
            shape = list(tensor.array.shape)
            raise ValueError(f"output {tensor.name!r} has shape {shape} for {sum(sizes)} rows")
    ends = np.cumsum(sizes).tolist()
    return [
        [
            (
                Tensor(
                    output.name, tensors[output.name].datatype, tensors[output.name].array[end - size : end]
                ),
                output.binary,
            )
            for output in signature.requested_outputs(request, model.outputs)
        ]
        for request, size, end in zip(requests, sizes, ends, strict=True)
    ]
