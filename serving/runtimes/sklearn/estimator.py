"""Adapts a scikit-learn estimator to `Model`: its input and output tensors, and predictions."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from serving import clock, errors
from serving.images.documents.output_manifest import Input, OutputManifest
from serving.runtimes.model import ModelOutput
from serving.runtimes.open_inference import signature, tensors
from serving.runtimes.open_inference.protocol import InferenceRequest, Tensor
from serving.runtimes.open_inference.tensors import Array

PREDICT = "predict"
PROBABILITIES = "probabilities"
_METHODS: Mapping[str, str] = {PREDICT: "predict", PROBABILITIES: "predict_proba"}


class Estimator:
    """A loaded model, safe to call from several threads, as prediction does not change an estimator."""

    def __init__(self, model: Any, manifest: OutputManifest) -> None:
        """Find the model's tensors by running it on a row of zeros.

        Raises:
            errors.Permanent: `UnsupportedModel`, the input is unknown or the model fails on a row of zeros.
        """
        self._model = model
        self._input = manifest.inputs[0] if manifest.inputs else _guess_input(model)
        self.inputs = (self._input,)
        self.row_seconds = 0.0
        self.outputs = self._probe()

    def _probe(self) -> tuple[ModelOutput, ...]:
        """Return the outputs, and set `row_seconds`, the duration of a prediction of one row."""
        names = [name for name, method in _METHODS.items() if hasattr(self._model, method)]
        shape = tuple(1 if size == -1 else size for size in self._input.shape)
        zero: object = b"" if self._input.datatype == "BYTES" else 0
        row = np.full(shape, zero, dtype=tensors.DTYPES[self._input.datatype])
        try:
            answers = [(name, self._answer(name, row)) for name in names]
            arrays = [
                (name, _array(name, answer)) for name, answer in answers if _has_one_shape(name, answer)
            ]
            # The first call has costs of its own, so a second one is timed.
            started = clock.monotonic()
            self._call(PREDICT, row)
            self.row_seconds = clock.monotonic() - started
        except (ValueError, TypeError) as error:
            raise errors.Permanent(
                "UnsupportedModel",
                f"the model fails on {self._input.datatype} zeros of shape {list(shape)}: {error}",
            ) from error
        return tuple(
            ModelOutput(name, tensors.datatype_of(array), (-1, *array.shape[1:])) for name, array in arrays
        )

    def expected_seconds(self, request: InferenceRequest) -> float:
        """Return the estimated duration of `infer`: the seconds of one row, times the rows and outputs."""
        return signature.rows(request) * self.row_seconds * max(1, len(request.outputs or self.outputs))

    def infer(self, request: InferenceRequest) -> list[tuple[Tensor, bool]]:
        """Return the requested outputs, each with whether it is sent as binary.

        Raises:
            errors.ApiError: 400, an input or output that this model does not have, or values that it refuses.
        """
        (rows,) = signature.arrays(request, self.inputs)
        requested = signature.requested_outputs(request, self.outputs)
        datatypes = {output.name: output.datatype for output in self.outputs}
        try:
            arrays = [self._call(output.name, rows) for output in requested]
        except ValueError as error:
            # scikit-learn refuses NaN, infinity and unknown categories by a ValueError.
            first_line = str(error).partition("\n")[0] or repr(error)
            message = f"inputs[0]: the model refuses it: {first_line}"
            raise errors.ApiError(400, "BadRequest", message) from error
        return [
            (Tensor(output.name, datatypes[output.name], array), output.binary)
            for output, array in zip(requested, arrays, strict=True)
        ]

    def _call(self, output: str, rows: Array) -> Array:
        return _array(output, self._answer(output, rows))

    def _answer(self, output: str, rows: Array) -> Any:
        if rows.dtype == object:
            rows = np.array([item.decode() for item in rows.ravel()], dtype=object).reshape(rows.shape)
        return getattr(self._model, _METHODS[output])(rows)


def _array(output: str, answer: Any) -> Array:
    """Return the answer of an output's method as an array whose first dimension is the rows.

    `predict_proba` of several targets returns a list of arrays [rows, classes], one for each target.
    """
    return np.stack(answer, axis=1) if _is_by_target(output, answer) else np.asarray(answer)


def _has_one_shape(output: str, answer: Any) -> bool:
    """Return whether the answer fits into one array: targets may differ in their numbers of classes."""
    return not _is_by_target(output, answer) or len({array.shape for array in answer}) == 1


def _is_by_target(output: str, answer: Any) -> bool:
    is_filled_list = output == PROBABILITIES and isinstance(answer, list) and bool(answer)
    return is_filled_list and all(isinstance(part, np.ndarray) and part.ndim == 2 for part in answer)


def _guess_input(model: Any) -> Input:
    features = getattr(model, "n_features_in_", None)
    if features is None:
        raise errors.Permanent(
            "UnsupportedModel",
            "the model has no n_features_in_: describe its input in slipway.json (inputs)",
        )
    return Input("input", "FP64", (-1, int(features)))
