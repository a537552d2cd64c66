"""Models of one column of numbers, for the runtimes' protocols."""

from serving.images.documents.output_manifest import Input
from serving.runtimes.batching.batches import Outputs
from serving.runtimes.model import ModelOutput
from serving.runtimes.open_inference.protocol import InferenceRequest, Tensor

UNLUCKY = 13.0


class ColumnModel:
    """Answers with the whole column doubled, or with its sum; fails for `UNLUCKY`."""

    inputs = (Input("x", "FP64", (-1,)),)
    outputs = (ModelOutput("y", "FP64", (-1,)),)

    def __init__(self, *, sums: bool = False) -> None:
        self._sums = sums

    def expected_seconds(self, request: InferenceRequest) -> float:
        return 0.0

    def infer(self, request: InferenceRequest) -> Outputs:
        (tensor,) = request.inputs
        if UNLUCKY in tensor.array:
            raise RuntimeError("13")
        result = tensor.array.sum(keepdims=True) if self._sums else tensor.array * 2
        return [(Tensor("y", "FP64", result), request.binary)]
