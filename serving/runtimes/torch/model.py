"""Adapts a PyTorch program to `Model`: its input and output tensors, and predictions.

Inputs are named by the arguments of `forward`. The outputs of a dictionary are named by its keys, a single
tensor is `output`, and several are `output_0`, `output_1` and so on.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from serving import clock, errors
from serving.images.documents.output_manifest import OutputManifest
from serving.resources import names
from serving.runtimes.model import ModelOutput
from serving.runtimes.open_inference import signature
from serving.runtimes.open_inference.protocol import InferenceRequest, Tensor
from serving.runtimes.open_inference.tensors import Array
from serving.runtimes.torch.files import Program, datatype

_REFUSALS = (AssertionError, IndexError, ValueError)
"""Errors of PyTorch for values and sizes that the program was not exported for: the client's mistake. Other
errors are faults of the model."""


class TorchModel:
    """A loaded program, safe to call from several threads, as inference does not change it."""

    def __init__(self, program: Program, manifest: OutputManifest) -> None:
        """Find the outputs by running the program on the examples that it was exported with.

        Raises:
            errors.Permanent: `UnsupportedModel`, the program fails on them, returns other values than
                tensors, or differs from `slipway.json`.
        """
        if manifest.inputs and manifest.inputs != program.inputs:
            raise errors.Permanent(
                "UnsupportedModel",
                f"{names.MANIFEST_FILE}: inputs: must be the program's {program.inputs},"
                f" got {manifest.inputs}",
            )
        self._program = program
        self.inputs = program.inputs
        try:
            tensors = self._call(program.examples)
            # The first call has costs of its own, so a second one is timed.
            started = clock.monotonic()
            self._call(program.examples)
            seconds = clock.monotonic() - started
        except (RuntimeError, *_REFUSALS) as error:
            message = f"the program fails on the inputs that it was exported with: {error}"
            raise errors.Permanent("UnsupportedModel", message) from error
        rows = max((example.shape[0] for example in program.examples if example.dim()), default=1)
        self.row_seconds = seconds / max(1, rows)
        self.outputs = tuple(
            ModelOutput(name, datatype(tensor), (-1, *tensor.shape[1:]) if tensor.dim() else ())
            for name, tensor in tensors.items()
        )

    def expected_seconds(self, request: InferenceRequest) -> float:
        """Return the estimated duration of `infer`: the seconds of one example row, times the rows."""
        return signature.rows(request) * self.row_seconds

    def infer(self, request: InferenceRequest) -> list[tuple[Tensor, bool]]:
        """Return the requested outputs, each with whether it is sent as binary.

        Raises:
            errors.ApiError: 400, an input or output that this model does not have, or values that it refuses.
        """
        arrays = signature.arrays(request, self.inputs)
        requested = signature.requested_outputs(request, self.outputs)
        try:
            tensors = self._call(tuple(torch.from_numpy(_writable(array)) for array in arrays))
        except _REFUSALS as error:
            first_line = next(iter(str(error).splitlines()), type(error).__name__)
            message = f"inputs: the model refuses them: {first_line}"
            raise errors.ApiError(400, "BadRequest", message) from error
        datatypes = {output.name: output.datatype for output in self.outputs}
        return [
            (Tensor(output.name, datatypes[output.name], tensors[output.name].numpy()), output.binary)
            for output in requested
        ]

    def _call(self, inputs: tuple[torch.Tensor, ...]) -> Mapping[str, torch.Tensor]:
        with torch.inference_mode():
            return _named(self._program.call(*inputs))


def _writable(array: Array) -> Array:
    """Return a writable array, as PyTorch has no read-only tensors; views of a request's body are copied."""
    return array if array.flags.writeable else np.array(array)


def _named(result: Any) -> Mapping[str, torch.Tensor]:
    """Return the tensors of a program's result by name, in main memory."""
    if isinstance(result, torch.Tensor):
        result = {"output": result}
    elif isinstance(result, tuple | list):
        result = {f"output_{i}": item for i, item in enumerate(result)}
    if not isinstance(result, dict) or not all(isinstance(item, torch.Tensor) for item in result.values()):
        raise errors.Permanent(
            "UnsupportedModel", "the program must return a tensor, several, or a dictionary of them by name"
        )
    return {name: item.cpu() for name, item in result.items()}
