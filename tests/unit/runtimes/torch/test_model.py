"""The tensors of a PyTorch program: matched by name, and refused when they do not fit."""

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving import errors
from serving.images.documents.output_manifest import Input, OutputManifest
from serving.runtimes.model import ModelOutput
from serving.runtimes.open_inference import protocol, tensors
from serving.runtimes.open_inference.protocol import InferenceRequest, RequestedOutput, Tensor
from tests.rig import optional_modules

if TYPE_CHECKING:
    from serving.runtimes.torch.model import TorchModel

torch = optional_modules.torch()
files = optional_modules.lazy("serving.runtimes.torch.files")
model = optional_modules.lazy("serving.runtimes.torch.model")
networks = optional_modules.lazy("tests.objects.models.torch_networks")


def served(module: Any, args: Any, kwargs: Any = None, sizes: Any = None, inputs: Any = ()) -> "TorchModel":
    exported = torch.export.export(module.eval(), args, kwargs or {}, dynamic_shapes=sizes)
    buffer = io.BytesIO()
    torch.export.save(exported, buffer)
    buffer.seek(0)
    loaded = torch.export.load(buffer)
    return model.TorchModel(files.program_of(loaded, loaded.module()), OutputManifest(inputs=inputs))


DATATYPES = {"ids": "INT64", "weights": "FP32", "scale": "FP32"}
ARRAYS = {
    "scale": np.array([2.0], np.float32),
    "weights": np.random.default_rng(1).random((3, 4), np.float32),
    "ids": np.arange(12).reshape(3, 4) % 10,
}


@pytest.fixture(scope="module")
def net() -> Any:
    return networks.Mixed()


@pytest.fixture(scope="module")
def mixed(net: Any) -> "TorchModel":
    """The network as a program, with batches of any size."""
    batch = torch.export.Dim("batch")
    return served(
        net,
        (torch.zeros(2, 4, dtype=torch.int64), torch.ones(2, 4)),
        {"scale": torch.ones(1)},
        {"ids": {0: batch}, "weights": {0: batch}, "scale": None},
    )


def ask(*outputs: str, **changed: np.ndarray) -> InferenceRequest:
    inputs = tuple(Tensor(name, DATATYPES[name], array) for name, array in {**ARRAYS, **changed}.items())
    return InferenceRequest(
        "", inputs, tuple(RequestedOutput(name, binary=True) for name in outputs) or None, binary=False
    )


def test_inputs_are_matched_by_argument_name_in_any_order(net: Any, mixed: "TorchModel") -> None:
    assert mixed.inputs == (
        Input("ids", "INT64", (-1, 4)),
        Input("weights", "FP32", (-1, 4)),
        Input("scale", "FP32", (1,)),
    )
    assert mixed.outputs == (
        ModelOutput("output_0", "FP32", (-1, 3)),
        ModelOutput("output_1", "BOOL", (-1, 3)),
    )
    (mean, _), (positive, _) = mixed.infer(ask())
    with torch.inference_mode():
        expected = net(
            torch.from_numpy(ARRAYS["ids"]), torch.from_numpy(ARRAYS["weights"]), scale=torch.tensor([2.0])
        )
    assert np.allclose(mean.array, expected[0].numpy())
    assert (positive.array == expected[1].numpy()).all()


def test_only_requested_outputs_are_returned_in_the_requested_form(mixed: "TorchModel") -> None:
    assert [(tensor.name, binary) for tensor, binary in mixed.infer(ask("output_1"))] == [("output_1", True)]
    with pytest.raises(
        errors.ApiError, match=r"outputs\[0\].name: must be one of output_0, output_1, got 'x'"
    ):
        mixed.infer(ask("x"))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"ids": ARRAYS["ids"] + 10}, "inputs: the model refuses them: index out of range"),
        ({"ids": ARRAYS["ids"][:2]}, "inputs: the model refuses them: Guard failed"),
        (
            {"ids": ARRAYS["ids"][:, :3]},
            r"inputs\[2\].shape: must be \[-1, 4\], where -1 is 1 or more, got \[3, 3\]",
        ),
        ({"weights": ARRAYS["weights"][:0]}, r"inputs\[1\].shape: must be \[-1, 4\]"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_with_400(
    mixed: "TorchModel", changed: dict[str, np.ndarray], says: str
) -> None:
    with pytest.raises(errors.ApiError, match=says) as caught:
        mixed.infer(ask(**changed))
    assert caught.value.code == 400


def test_missing_and_unknown_inputs_are_refused_by_name(mixed: "TorchModel") -> None:
    request = ask()
    with pytest.raises(
        errors.ApiError, match=r"inputs: must be ids, weights, scale, got \['scale', 'weights'\]"
    ):
        mixed.infer(InferenceRequest("", request.inputs[:2], None, binary=False))
    inputs = (*request.inputs[:2], Tensor("idz", "INT64", ARRAYS["ids"]))
    with pytest.raises(
        errors.ApiError, match=r"inputs\[2\].name: must be 'ids' or 'weights' or 'scale', got 'idz'"
    ):
        mixed.infer(InferenceRequest("", inputs, None, binary=False))


@pytest.mark.parametrize(
    ("give", "outputs"),
    [
        (lambda x: x + 1, [("output", (-1, 2))]),
        (lambda x: {"a": x + 1, "b": x.sum()}, [("a", (-1, 2)), ("b", ())]),
        (lambda x: [x.sum(dim=1), x * 2], [("output_0", (-1,)), ("output_1", (-1, 2))]),
    ],
)
def test_outputs_are_named_by_key_or_position(give: Any, outputs: list[Any]) -> None:
    program = served(networks.Giving(give), (torch.ones(2, 2),))
    assert [(output.name, output.shape) for output in program.outputs] == outputs


@pytest.mark.parametrize("give", [lambda x: {"a": [x + 1]}, lambda x: (x + 1, None), lambda x: x.bfloat16()])
def test_an_output_that_is_not_a_tensor_is_refused_at_the_start(give: Any) -> None:
    with pytest.raises(errors.Permanent) as caught:
        served(networks.Giving(give), (torch.ones(2, 2),))
    assert caught.value.reason == "UnsupportedModel"


def test_a_manifest_that_differs_from_the_program_is_refused() -> None:
    with pytest.raises(errors.Permanent, match=r"slipway.json: inputs: must be the program's"):
        served(networks.Giving(torch.relu), (torch.ones(2, 2),), inputs=(Input("x", "FP32", (-1, 2)),))


DIMENSIONS = st.lists(st.integers(0, 5), max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=15,
)


@st.composite
def inputs(draw: st.DrawFn) -> dict[str, Any]:
    """An input whose fields are valid or random."""
    shape = draw(st.sampled_from([[2, 4], [1], [3, 4]]) | DIMENSIONS)
    count = int(np.prod(shape))
    numbers = st.lists(st.integers(-1, 10), min_size=count, max_size=count)
    return {
        "name": draw(st.sampled_from(["ids", "weights", "scale", "x"])),
        "datatype": draw(st.just("INT64") | st.sampled_from([*tensors.DTYPES, "FP128"])),
        "shape": shape,
        "data": draw(numbers | JSON),
    }


def answered(mixed: "TorchModel", document: Any) -> list[Any] | errors.ApiError:
    try:
        request = protocol.decode(json.dumps(document).encode(), None)
        assert mixed.expected_seconds(request) >= 0
        return mixed.infer(request)
    except errors.ApiError as error:
        return error


@settings(max_examples=100)
@given(st.lists(inputs(), max_size=4), st.floats(-1e39, 1e39))
def test_any_request_returns_outputs_or_a_400(mixed: "TorchModel", inputs: list[Any], scale: float) -> None:
    valid_inputs = [
        {"name": "scale", "datatype": "FP32", "shape": [1], "data": [scale]},
        {"name": "weights", "datatype": "FP32", "shape": [2, 4], "data": [0.5] * 8},
    ]
    answer = answered(mixed, {"inputs": [*valid_inputs, *inputs] if len(inputs) == 1 else inputs})
    if isinstance(answer, errors.ApiError):
        assert answer.code == 400
        assert answer.message
    else:
        assert [tensor.array.shape for tensor, _ in answer] == [(2, 3), (2, 3)]
