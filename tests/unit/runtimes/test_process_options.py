"""The options of a runtime from its environment, and the predictions that follow from them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from serving import errors
from serving.images.documents.output_manifest import Input
from serving.runtimes import process
from serving.runtimes.batching import predictions
from serving.runtimes.batching.batches import Outputs
from serving.runtimes.model import ModelOutput
from serving.runtimes.open_inference.protocol import InferenceRequest
from serving.settings import RuntimeSettings

SETTINGS = RuntimeSettings()
REQUIRED = {
    "SLIPWAY_MODEL_NAME": "digits",
    "SLIPWAY_MODEL_VERSION": "v1",
    "SLIPWAY_MODEL_DIR": "/models",
    "SLIPWAY_MODEL_DIGEST": "d",
    "SLIPWAY_MODEL_FILES_DIGEST": "f",
}


class ShapedModel:
    """Of one shape."""

    def __init__(self, *shape: int) -> None:
        self.inputs = (Input("x", "FP32", shape),)
        self.outputs = (ModelOutput("y", "FP32", (-1,)),)

    def expected_seconds(self, request: InferenceRequest) -> float:
        return 0

    def infer(self, request: InferenceRequest) -> Outputs:
        raise AssertionError("nothing is predicted here")


def predicted(model: ShapedModel, **environment: str) -> predictions.Predictions:
    chosen = process.options({**REQUIRED, **environment}, SETTINGS)
    with ThreadPoolExecutor(1) as worker:
        return process._predictions(model, chosen, SETTINGS, worker)


@pytest.mark.parametrize(
    ("environment", "host"),
    [
        ({}, "127.0.0.1"),
        ({"HOST": "127.77.0.2"}, "127.77.0.2"),
        ({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "0.0.0.0"),
        ({"KUBERNETES_SERVICE_HOST": "fd00::1"}, "::"),
        ({"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOST": "10.1.2.3"}, "10.1.2.3"),
    ],
)
def test_runtime_listens_where_gateways_reach_it(environment: dict[str, str], host: str) -> None:
    assert process.options({**REQUIRED, **environment}, SETTINGS).host == host


@pytest.mark.parametrize(("sealed", "is_sealed"), [({"SLIPWAY_MODEL_SEALED": "d"}, True), ({}, False)])
def test_image_counts_as_sealed_when_the_node_has_checked_its_seal(
    sealed: dict[str, str], *, is_sealed: bool
) -> None:
    assert process.options({**REQUIRED, **sealed}, SETTINGS).is_sealed is is_sealed
    other = {"SLIPWAY_MODEL_SEALED": "another image"}
    assert not process.options({**REQUIRED, **other}, SETTINGS).is_sealed


@pytest.mark.parametrize("environment", [{}, {"SLIPWAY_BATCH_SIZE": "1", "SLIPWAY_BATCH_TIMEOUT": "2ms"}])
def test_requests_are_not_batched_by_default(environment: dict[str, str]) -> None:
    assert isinstance(predicted(ShapedModel(-1, 4), **environment), predictions.SinglePredictions)


def test_requests_are_batched_with_the_options_of_the_environment() -> None:
    predictor = predicted(ShapedModel(-1, 4), SLIPWAY_BATCH_SIZE="8", SLIPWAY_BATCH_TIMEOUT="2ms")
    assert isinstance(predictor, predictions.BatchedPredictions)
    assert (predictor._queue.size, predictor._queue.patience) == (8, 0.002)


def test_a_model_with_a_fixed_batch_predicts_each_request_and_warns_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert isinstance(predicted(ShapedModel(1, 64), SLIPWAY_BATCH_SIZE="8"), predictions.SinglePredictions)
    (warning,) = caplog.messages
    assert warning.startswith(
        "SLIPWAY_BATCH_SIZE: each request is predicted by itself: input 'x' has shape [1, 64]"
    )


@pytest.mark.parametrize(
    ("variable", "wrong"),
    [
        ("SLIPWAY_BATCH_SIZE", "0"),
        ("SLIPWAY_BATCH_SIZE", "many"),
        ("SLIPWAY_BATCH_SIZE", "-2"),
        ("SLIPWAY_BATCH_TIMEOUT", "2"),
        ("PORT", "http"),
        ("PORT", "70000"),
        ("PORT", "\N{SUPERSCRIPT TWO}"),
    ],
)
def test_an_invalid_variable_is_refused_with_its_value(variable: str, wrong: str) -> None:
    with pytest.raises(errors.UserError, match=f"^{variable}: .*'{wrong}'"):
        process.options({**REQUIRED, variable: wrong}, SETTINGS)
