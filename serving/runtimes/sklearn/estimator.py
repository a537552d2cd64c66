"""A scikit-learn estimator as tensors in, tensors out: what it takes, what it gives, and one call of it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from serving import clock, errors
from serving.images.documents.output_manifest import Input, OutputManifest
from serving.runtimes import signature, tensors
from serving.runtimes.model import Output
from serving.runtimes.protocol import Request, Tensor
from serving.runtimes.tensors import Array

PREDICT = "predict"
PROBABILITIES = "probabilities"
_METHODS: Mapping[str, str] = {PREDICT: "predict", PROBABILITIES: "predict_proba"}


class Estimator:
    """A loaded model. Calling it is safe from several threads: prediction does not change an estimator."""

    def __init__(self, model: Any, described: OutputManifest) -> None:
        """Work out the model's tensors, by running it once on zeros.

        Raises:
            errors.Permanent: `UnsupportedModel`, its input is unknown or it fails on a row of zeros.
        """
        self._model = model
        self._input = described.inputs[0] if described.inputs else _guess_input(model)
        self.inputs = (self._input,)
        self.row_seconds = 0.0
        self.outputs = self._probe()

    def _probe(self) -> tuple[Output, ...]:
        names = [name for name, method in _METHODS.items() if hasattr(self._model, method)]
        shape = tuple(1 if size == -1 else size for size in self._input.shape)
        zero: object = b"" if self._input.datatype == "BYTES" else 0
        row = np.full(shape, zero, dtype=tensors.DTYPES[self._input.datatype])
        try:
            found = [(name, self._call(name, row)) for name in names]
            # Again, now that first-call costs are paid: what one row takes.
            started = clock.monotonic()
            self._call(PREDICT, row)
            self.row_seconds = clock.monotonic() - started
        except (ValueError, TypeError) as error:
            raise errors.Permanent(
                "UnsupportedModel",
                f"the model fails on {self._input.datatype} zeros of shape {list(shape)}: {error}",
            ) from error
        return tuple(Output(name, tensors.datatype_of(a), (-1, *a.shape[1:])) for name, a in found)

    def expected_seconds(self, request: Request) -> float:
        """Return about how long `infer` will take, as if every row cost what the first one did."""
        return signature.rows(request) * self.row_seconds * max(1, len(request.outputs or self.outputs))

    def infer(self, request: Request) -> list[tuple[Tensor, bool]]:
        """Return the outputs that are asked for, each with whether it goes as binary.

        Raises:
            errors.ApiError: 400, an input or output that this model does not have, or values that it refuses.
        """
        (rows,) = signature.arrays(request, self.inputs)
        wanted = signature.wanted(request, self.outputs)
        datatypes = {output.name: output.datatype for output in self.outputs}
        try:
            arrays = [self._call(one.name, rows) for one in wanted]
        except ValueError as error:
            # scikit-learn's own refusal of values: NaN, infinity, an unknown category.
            first = str(error).splitlines()[0]
            raise errors.ApiError(400, "BadRequest", f"inputs[0]: the model refuses it: {first}") from error
        return [
            (Tensor(one.name, datatypes[one.name], array), one.binary)
            for one, array in zip(wanted, arrays, strict=True)
        ]

    def _call(self, output: str, rows: Array) -> Array:
        if rows.dtype == object:
            rows = np.array([item.decode() for item in rows.ravel()], dtype=object).reshape(rows.shape)
        return np.asarray(getattr(self._model, _METHODS[output])(rows))


def _guess_input(model: Any) -> Input:
    features = getattr(model, "n_features_in_", None)
    if features is None:
        raise errors.Permanent(
            "UnsupportedModel",
            "the model does not say n_features_in_: describe its input in slipway.json (inputs)",
        )
    return Input("input", "FP64", (-1, int(features)))
