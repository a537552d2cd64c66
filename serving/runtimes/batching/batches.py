"""Joins the rows of several requests into one request, and splits its answer again. Pure."""

from collections.abc import Hashable, Sequence

import numpy as np

from serving.images.documents.output_manifest import Input
from serving.runtimes.model import LoadedModel, ModelOutput
from serving.runtimes.open_inference import signature
from serving.runtimes.open_inference.protocol import InferenceRequest, RequestedOutput, Tensor

Outputs = list[tuple[Tensor, bool]]
"""The outputs for one request, in the order in which the request asks for them. Each is a tensor, and whether
it is sent as binary."""


def obstacle(inputs: Sequence[Input], outputs: Sequence[ModelOutput]) -> str:
    """Return why rows of different requests cannot be joined; empty where they can."""
    for direction, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            if tensor.shape[:1] != (-1,):
                shape = list(tensor.shape)
                return f"{direction} {tensor.name!r} has shape {shape}, and its first dimension is not open"
    return ""


def form(request: InferenceRequest, model: LoadedModel) -> tuple[int, Hashable]:
    """Return a request's number of rows, and its form.

    Requests of one form can be joined: each of their inputs has the same shape but for the number of rows. A
    request of form None can be joined with no other, as its inputs differ in the number of rows.

    Raises:
        errors.ApiError: 400, an input or output that this model does not have.
    """
    arrays = signature.arrays(request, model.inputs)
    signature.requested_outputs(request, model.outputs)  # a wrong output must not fail the whole batch
    rows = {array.shape[0] for array in arrays}
    if len(rows) > 1:
        return max(rows), None
    return rows.pop(), tuple(array.shape[1:] for array in arrays)


def joined(requests: Sequence[InferenceRequest], model: LoadedModel) -> InferenceRequest:
    """Return one request with all rows, in order, and every output that any of the requests asks for."""
    # For each input of the model: the arrays of all requests.
    arrays_by_input = zip(*(signature.arrays(request, model.inputs) for request in requests), strict=True)
    inputs = tuple(
        Tensor(declared.name, declared.datatype, np.concatenate(arrays))
        for declared, arrays in zip(model.inputs, arrays_by_input, strict=True)
    )
    requested = {
        output.name for request in requests for output in signature.requested_outputs(request, model.outputs)
    }
    outputs = tuple(
        RequestedOutput(output.name, binary=False) for output in model.outputs if output.name in requested
    )
    return InferenceRequest("", inputs, outputs, binary=False)


def split(answer: Outputs, requests: Sequence[InferenceRequest], model: LoadedModel) -> list[Outputs]:
    """Return each request's part of the answer: its rows of the outputs that it asks for.

    Args:
        answer: the outputs for the joined request.
        requests: the requests that were joined, in the same order.
        model: the model.

    Raises:
        ValueError: an output has another number of rows than the joined request.
    """
    sizes = [signature.rows(request) for request in requests]
    tensors = {tensor.name: tensor for tensor, _ in answer}
    for tensor in tensors.values():
        if tensor.array.shape[:1] != (sum(sizes),):
            shape = list(tensor.array.shape)
            raise ValueError(f"output {tensor.name!r} has shape {shape} for {sum(sizes)} rows")
    parts: list[Outputs] = []
    start = 0
    for request, size in zip(requests, sizes, strict=True):
        rows = slice(start, start + size)
        parts.append(
            [
                (_part(tensors[output.name], rows), output.binary)
                for output in signature.requested_outputs(request, model.outputs)
            ]
        )
        start += size
    return parts


def _part(tensor: Tensor, rows: slice) -> Tensor:
    return Tensor(tensor.name, tensor.datatype, tensor.array[rows])
