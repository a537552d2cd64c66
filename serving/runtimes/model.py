"""The interface between the protocol and a framework's models; each runtime implements it."""

from dataclasses import dataclass
from typing import Protocol

from serving.images.documents.output_manifest import Input
from serving.runtimes.open_inference.protocol import InferenceRequest, Tensor


@dataclass(frozen=True)
class ModelOutput:
    """One output tensor; -1 in the shape is any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class LoadedModel(Protocol):
    """A loaded model that has run once. Calls may come from several threads."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Input tensors."""

    @property
    def outputs(self) -> tuple[ModelOutput, ...]:
        """Output tensors."""

    def expected_seconds(self, request: InferenceRequest) -> float:
        """Return the estimated duration of `infer`."""

    def infer(self, request: InferenceRequest) -> list[tuple[Tensor, bool]]:
        """Return the requested outputs, each with whether it is sent as binary.

        Raises:
            errors.ApiError: 400, an input or output that this model does not have, or values that it refuses.
        """
