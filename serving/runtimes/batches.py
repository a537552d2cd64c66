"""Several requests as one, and its answer as theirs: rows are put behind each other, and taken apart again. Pure."""

from collections.abc import Hashable, Sequence

import numpy as np

from serving.images.documents.output_manifest import Input
from serving.runtimes import signature
from serving.runtimes.model import Model, Output
from serving.runtimes.protocol import Request, Tensor, Wanted

Answer = list[tuple[Tensor, bool]]
"""Outputs, each with whether it goes as binary."""


def obstacle(inputs: Sequence[Input], outputs: Sequence[Output]) -> str:
    """Return why rows of different requests cannot be put together; empty where they can."""
    for what, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            if tensor.shape[:1] != (-1,):
                return f"{what} {tensor.name!r} has shape {list(tensor.shape)}, and its first dimension is not open"
    return ""


def form(request: Request, model: Model) -> tuple[int, Hashable]:
    """Return a request's rows, and what it shares with requests that can be joined with it: None where none can.

    Raises:
        errors.ApiError: 400, an input or output that this model does not have.
    """
    arrays = signature.arrays(request, model.inputs)
    signature.wanted(request, model.outputs)
    rows = {array.shape[0] for array in arrays}
    if len(rows) > 1:
        return max(rows), None
    return rows.pop(), tuple(array.shape[1:] for array in arrays)


def joined(requests: Sequence[Request], model: Model) -> Request:
    """Return one request for all rows, in order, and for every output that any of them asks for."""
    columns = zip(*(signature.arrays(request, model.inputs) for request in requests), strict=True)
    inputs = tuple(
        Tensor(one.name, one.datatype, np.concatenate(column))
        for one, column in zip(model.inputs, columns, strict=True)
    )
    asked = {one.name for request in requests for one in signature.wanted(request, model.outputs)}
    outputs = tuple(Wanted(output.name, binary=False) for output in model.outputs if output.name in asked)
    return Request("", inputs, outputs, binary=False)


def split(answer: Answer, requests: Sequence[Request], model: Model) -> list[Answer]:
    """Return each request's part of the answer to all of them.

    Raises:
        ValueError: an output does not have a row for each row that was sent.
    """
    sizes = [signature.rows(request) for request in requests]
    found = {tensor.name: tensor for tensor, _ in answer}
    for tensor in found.values():
        if tensor.array.shape[:1] != (sum(sizes),):
            shape = list(tensor.array.shape)
            raise ValueError(f"output {tensor.name!r} has shape {shape} for {sum(sizes)} rows")
    ends = np.cumsum(sizes).tolist()
    return [
        [
            (Tensor(one.name, found[one.name].datatype, found[one.name].array[end - size : end]), one.binary)
            for one in signature.wanted(request, model.outputs)
        ]
        for request, size, end in zip(requests, sizes, ends, strict=True)
    ]
