"""A PyTorch program as tensors in, tensors out: what it takes, what it gives, and one call of it.

Inputs have the names of the arguments of `forward`. A dictionary's tensors have the names of its keys, one tensor
alone is `output`, and several are `output_0`, `output_1`, and so on.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from serving import clock, errors
from serving.images.documents.output_manifest import OutputManifest
from serving.runtimes import signature
from serving.runtimes.model import Output
from serving.runtimes.protocol import Request, Tensor
from serving.runtimes.tensors import Array
from serving.runtimes.torch.files import Program, datatype

_REFUSALS = (AssertionError, IndexError, ValueError)
"""What PyTorch raises for values and sizes that the program was not exported for; anything else is the model's fault."""


class TorchModel:
    """A loaded program. Calling it is safe from several threads: inference does not change it."""

    def __init__(self, program: Program, described: OutputManifest) -> None:
        """Work out the outputs, by running the program on the examples that it was exported with.

        Raises:
            errors.Permanent: `UnsupportedModel`, it fails on them, gives something else than tensors, or is not what
                `slipway.json` says.
        """
        if described.inputs and described.inputs != program.inputs:
            raise errors.Permanent(
                "UnsupportedModel",
                f"slipway.json: inputs: must be the program's {program.inputs}, got {described.inputs}",
            )
        self._program = program
        self.inputs = program.inputs
        try:
            found = self._call(program.examples)
            # Again, now that first-call costs are paid: what one row takes.
            started = clock.monotonic()
            self._call(program.examples)
            took = clock.monotonic() - started
        except (RuntimeError, *_REFUSALS) as error:
            message = f"the program fails on the inputs that it was exported with: {error}"
            raise errors.Permanent("UnsupportedModel", message) from error
        batch = max((example.shape[0] for example in program.examples if example.dim()), default=1)
        self.row_seconds = took / max(1, batch)
        self.outputs = tuple(
            Output(name, datatype(tensor), (-1, *tensor.shape[1:]) if tensor.dim() else ())
            for name, tensor in found.items()
        )

    def expected_seconds(self, request: Request) -> float:
        """Return about how long `infer` will take, as if every row cost what the example's did."""
        return signature.rows(request) * self.row_seconds

    def infer(self, request: Request) -> list[tuple[Tensor, bool]]:
        """Return the outputs that are asked for, each with whether it goes as binary.

        Raises:
            errors.ApiError: 400, an input or output that this model does not have, or values that it refuses.
        """
        arrays = signature.arrays(request, self.inputs)
        wanted = signature.wanted(request, self.outputs)
        try:
            found = self._call(tuple(torch.from_numpy(_writable(array)) for array in arrays))
        except _REFUSALS as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise errors.ApiError(400, "BadRequest", f"inputs: the model refuses them: {first}") from error
        datatypes = {output.name: output.datatype for output in self.outputs}
        return [
            (Tensor(one.name, datatypes[one.name], found[one.name].numpy()), one.binary) for one in wanted
        ]

    def _call(self, inputs: tuple[torch.Tensor, ...]) -> Mapping[str, torch.Tensor]:
        with torch.inference_mode():
            return _named(self._program.call(*inputs))


def _writable(array: Array) -> Array:
    # A view of the request's bytes is not, and PyTorch has no tensors that are read-only.
    return array if array.flags.writeable else np.array(array)


def _named(result: Any) -> Mapping[str, torch.Tensor]:
    if isinstance(result, torch.Tensor):
        result = {"output": result}
    elif isinstance(result, tuple | list):
        result = {f"output_{i}": item for i, item in enumerate(result)}
    if not isinstance(result, dict) or not all(isinstance(item, torch.Tensor) for item in result.values()):
        raise errors.Permanent(
            "UnsupportedModel", "the program must give a tensor, several, or a dictionary of them by name"
        )
    return {name: item.cpu() for name, item in result.items()}
