"""The tensors of an estimator, from its manifest or from its fit."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from serving import errors
from serving.images.documents.output_manifest import Input, OutputManifest
from serving.runtimes.model import ModelOutput
from serving.runtimes.open_inference.protocol import InferenceRequest, RequestedOutput, Tensor
from serving.runtimes.sklearn.estimator import Estimator

ROWS = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])


def ask(array: np.ndarray, datatype: str = "FP64", *output_names: str) -> InferenceRequest:
    outputs = tuple(RequestedOutput(name, binary=False) for name in output_names) or None
    return InferenceRequest("", (Tensor("input", datatype, array),), outputs, binary=False)


def test_a_regressor_has_no_probabilities() -> None:
    estimator = Estimator(LinearRegression().fit(ROWS, ROWS.sum(axis=1)), OutputManifest())
    assert estimator.inputs == (Input("input", "FP64", (-1, 2)),)
    assert estimator.outputs == (ModelOutput("predict", "FP64", (-1,)),)
    ((tensor, _),) = estimator.infer(ask(ROWS))
    assert np.allclose(tensor.array, ROWS.sum(axis=1))


def test_several_targets_are_columns_of_predict() -> None:
    estimator = Estimator(LinearRegression().fit(ROWS, ROWS), OutputManifest())
    assert estimator.outputs == (ModelOutput("predict", "FP64", (-1, 2)),)


def test_probabilities_have_rows_first_when_there_are_several_targets() -> None:
    model = DecisionTreeClassifier(random_state=1).fit(ROWS, ROWS.astype(int))
    estimator = Estimator(model, OutputManifest())
    assert estimator.outputs[1] == ModelOutput("probabilities", "FP64", (-1, 2, 2))
    ((tensor, _),) = estimator.infer(ask(ROWS[:3], "FP64", "probabilities"))
    expected = [[[1 - x, x], [1 - y, y]] for x, y in ROWS[:3].tolist()]
    assert tensor.array.tolist() == expected


def test_probabilities_are_no_output_when_targets_differ_in_the_number_of_classes() -> None:
    model = DecisionTreeClassifier(random_state=1).fit(ROWS, [[0, 0], [1, 1], [0, 2], [1, 0]])
    estimator = Estimator(model, OutputManifest())
    assert estimator.outputs == (ModelOutput("predict", "INT64", (-1, 2)),)
    ((tensor, _),) = estimator.infer(ask(ROWS[1:2]))
    assert tensor.array.tolist() == [[1, 1]]


def test_a_list_with_the_probabilities_of_each_row_has_rows_first() -> None:
    class Listing(BaseEstimator):
        n_features_in_ = 2

        def predict(self, rows: np.ndarray) -> np.ndarray:
            return rows[:, 0]

        def predict_proba(self, rows: np.ndarray) -> list[np.ndarray]:
            return [np.array([1 - x, x]) for x, _ in rows]

    ((tensor, _),) = Estimator(Listing(), OutputManifest()).infer(ask(ROWS[:3], "FP64", "probabilities"))
    assert tensor.array.tolist() == [[1, 0], [0, 1], [1, 0]]


def test_text_labels_are_bytes() -> None:
    estimator = Estimator(LogisticRegression().fit(ROWS, ["no", "yes", "no", "yes"]), OutputManifest())
    assert estimator.outputs == (
        ModelOutput("predict", "BYTES", (-1,)),
        ModelOutput("probabilities", "FP64", (-1, 2)),
    )


def test_text_input_is_decoded() -> None:
    words = np.array([["red"], ["blue"], ["red"]], dtype=object)
    encoder = OneHotEncoder(handle_unknown="ignore")
    model = make_pipeline(encoder, LogisticRegression(C=100)).fit(words, [1, 0, 1])
    estimator = Estimator(model, OutputManifest(inputs=(Input("input", "BYTES", (-1, 1)),)))
    encoded = np.array([[b"blue"], [b"red"]], dtype=object)
    ((tensor, _),) = estimator.infer(ask(encoded, "BYTES", "predict"))
    assert tensor.array.tolist() == [0, 1]


def test_text_that_is_not_utf8_is_refused_with_400() -> None:
    words = np.array([["red"], ["blue"]], dtype=object)
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()).fit(words, [1, 0])
    estimator = Estimator(model, OutputManifest(inputs=(Input("input", "BYTES", (-1, 1)),)))
    with pytest.raises(errors.ApiError) as caught:
        estimator.infer(ask(np.array([[b"\xff"]], dtype=object), "BYTES"))
    assert caught.value.code == 400


def test_a_model_with_unknown_input_is_refused_with_a_remedy() -> None:
    class Mute(BaseEstimator):
        def predict(self, rows: np.ndarray) -> np.ndarray:
            return rows

    with pytest.raises(errors.Permanent, match=r"describe its input in slipway\.json") as caught:
        Estimator(Mute(), OutputManifest())
    assert caught.value.reason == "UnsupportedModel"


def test_a_model_that_fails_on_zeros_is_refused_at_the_start() -> None:
    model = make_pipeline(FunctionTransformer(), LinearRegression()).fit(ROWS, [0, 1, 2, 3])
    described = OutputManifest(inputs=(Input("input", "FP64", (-1, 5)),))
    with pytest.raises(errors.Permanent, match="fails on FP64 zeros of shape"):
        Estimator(model, described)


def test_values_that_the_model_refuses_are_answered_with_400() -> None:
    estimator = Estimator(LinearRegression().fit(ROWS, ROWS.sum(axis=1)), OutputManifest())
    with pytest.raises(
        errors.ApiError, match=r"inputs\[0\]: the model refuses it: Input X contains NaN"
    ) as caught:
        estimator.infer(ask(np.full((1, 2), np.nan)))
    assert caught.value.code == 400


@pytest.mark.parametrize(("text", "shown"), [("", "ValueError"), ("too small\nby 2", "too small$")])
def test_values_are_refused_with_400_when_the_error_of_the_model_has_no_text(text: str, shown: str) -> None:
    class Picky(BaseEstimator):
        n_features_in_ = 2

        def predict(self, rows: np.ndarray) -> np.ndarray:
            if rows.any():
                raise ValueError(text)
            return rows[:, 0]

    with pytest.raises(errors.ApiError, match=f"the model refuses it: {shown}") as caught:
        Estimator(Picky(), OutputManifest()).infer(ask(ROWS))
    assert caught.value.code == 400
