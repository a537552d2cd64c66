"""Joined requests get the same answers as separate ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from serving import errors
from serving.images.documents.output_manifest import Input, OutputManifest
from serving.runtimes.batching import batches
from serving.runtimes.model import ModelOutput
from serving.runtimes.open_inference.protocol import InferenceRequest, RequestedOutput, Tensor
from serving.runtimes.sklearn.estimator import Estimator

GRID = np.array([[x, y] for x in range(6) for y in range(6)], float)
MODEL = Estimator(DecisionTreeClassifier(random_state=1).fit(GRID, GRID.sum(axis=1) % 5), OutputManifest())

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4)
WANTED = st.none() | st.lists(
    st.builds(RequestedOutput, st.sampled_from(["predict", "probabilities"]), st.booleans()),
    min_size=1,
    max_size=2,
    unique_by=lambda output: output.name,
).map(tuple)
REQUESTS = st.lists(st.tuples(ROWS, WANTED, st.booleans()), min_size=1, max_size=6)


def request(
    rows: object, outputs: tuple[RequestedOutput, ...] | None = None, *, binary: bool = False
) -> InferenceRequest:
    return InferenceRequest("", (Tensor("input", "FP64", np.array(rows, float)),), outputs, binary)


def plain(answer: batches.Outputs) -> list[tuple[str, str, list[object], bool]]:
    return [(tensor.name, tensor.datatype, tensor.array.tolist(), binary) for tensor, binary in answer]


@given(REQUESTS)
def test_parts_of_a_joined_answer_equal_separate_answers(
    cases: list[tuple[list[tuple[int, int]], tuple[RequestedOutput, ...] | None, bool]],
) -> None:
    requests = [request(rows, outputs, binary=binary) for rows, outputs, binary in cases]
    answer = MODEL.infer(batches.joined(requests, MODEL))
    parts = batches.split(answer, requests, MODEL)
    assert [plain(part) for part in parts] == [plain(MODEL.infer(single)) for single in requests]


def test_an_output_is_computed_only_when_a_request_asks_for_it() -> None:
    predict = (RequestedOutput("predict", binary=True),)
    joined = batches.joined([request([[1, 2]], predict), request([[3, 4]], predict)], MODEL)
    assert joined.outputs == (RequestedOutput("predict", binary=False),)


class Two:
    """A model of two inputs, of which one has a second dimension that is open."""

    inputs = (Input("ids", "INT64", (-1, -1)), Input("scale", "FP32", (-1,)))
    outputs = (ModelOutput("y", "FP32", (-1,)),)

    def expected_seconds(self, request: InferenceRequest) -> float:
        return 0

    def infer(self, request: InferenceRequest) -> batches.Outputs:
        raise AssertionError("nothing is predicted here")


def two(ids: tuple[int, int], scales: int) -> InferenceRequest:
    tensors = (
        Tensor("scale", "FP32", np.ones(scales, np.float32)),
        Tensor("ids", "INT64", np.ones(ids, np.int64)),
    )
    return InferenceRequest("", tensors, None, binary=False)


def test_requests_have_one_form_when_only_their_rows_differ() -> None:
    assert batches.form(two((2, 7), 2), Two()) == (2, ((7,), ()))
    assert batches.form(two((3, 7), 3), Two()) == (3, ((7,), ()))
    assert batches.form(two((2, 8), 2), Two())[1] == ((8,), ())


def test_requests_with_inputs_of_different_rows_have_no_form() -> None:
    assert batches.form(two((2, 7), 1), Two()) == (2, None)


def test_inputs_are_joined_by_name_in_any_order() -> None:
    joined = batches.joined([two((2, 7), 2), two((1, 7), 1)], Two())
    assert [(tensor.name, tensor.array.shape) for tensor in joined.inputs] == [
        ("ids", (3, 7)),
        ("scale", (3,)),
    ]


@pytest.mark.parametrize(
    "wrong", [request([[1, 2, 3]]), request([]), request([[1, 2]], (RequestedOutput("other", binary=False),))]
)
def test_an_invalid_request_is_refused_before_it_is_joined(wrong: InferenceRequest) -> None:
    with pytest.raises(errors.ApiError) as caught:
        batches.form(wrong, MODEL)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("inputs", "outputs", "named"),
    [
        ((1, 64), (-1,), "input 'x' has shape [1, 64]"),
        ((), (-1,), "input 'x' has shape []"),
        ((-1, 64), (), "output 'y' has shape []"),
        ((-1, 64), (1, 10), "output 'y' has shape [1, 10]"),
    ],
)
def test_a_fixed_first_dimension_is_an_obstacle(
    inputs: tuple[int, ...], outputs: tuple[int, ...], named: str
) -> None:
    obstacle = batches.obstacle([Input("x", "FP32", inputs)], [ModelOutput("y", "FP32", outputs)])
    assert obstacle.startswith(named)


def test_a_model_with_open_first_dimensions_has_no_obstacle() -> None:
    assert batches.obstacle(MODEL.inputs, MODEL.outputs) == ""


def test_an_answer_with_another_number_of_rows_is_not_split() -> None:
    mean = [(Tensor("predict", "FP64", np.zeros(1)), False)]
    with pytest.raises(ValueError, match=r"output 'predict' has shape \[1\] for 2 rows"):
        batches.split(mean, [request([[1, 2]]), request([[3, 4]])], MODEL)
