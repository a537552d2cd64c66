"""The codec of `ModelInfer`: round trips against tritonclient's messages, and refusals by field and rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tritonclient.grpc import service_pb2 as triton

from serving import errors
from serving.runtimes.grpc import codec
from serving.runtimes.grpc import messages_pb2 as messages
from serving.runtimes.open_inference import tensors
from serving.runtimes.open_inference.protocol import Tensor

SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
CONTENTS = {"b": "bool_contents", "i": "int_contents", "u": "uint_contents"}


@st.composite
def arrays(draw: st.DrawFn) -> tuple[str, np.ndarray]:
    datatype = draw(st.sampled_from(list(tensors.DTYPES)))
    shape = draw(SHAPES)
    if datatype == "BYTES":
        count = int(np.prod(shape))
        array = np.empty(count, dtype=object)
        array[:] = draw(st.lists(st.binary(max_size=6), min_size=count, max_size=count))
        return datatype, array.reshape(shape)
    dtype = tensors.DTYPES[datatype]
    return datatype, draw(hnp.arrays(dtype, shape, elements=hnp.from_dtype(dtype, allow_nan=False)))


def contents_field(datatype: str) -> str:
    if datatype in ("INT64", "UINT64", "FP32", "FP64", "BYTES"):
        return f"{datatype.lower()}_contents"
    return CONTENTS[tensors.DTYPES[datatype].kind]


def triton_request(datatype: str, array: np.ndarray, *, raw: bool) -> triton.ModelInferRequest:
    request = triton.ModelInferRequest(model_name="m", id="r1")
    tensor = request.inputs.add(name="x", datatype=datatype, shape=list(array.shape))
    if raw:
        request.raw_input_contents.append(tensors.to_binary(array))
    else:
        getattr(tensor.contents, contents_field(datatype)).extend(array.ravel().tolist())
    return request


def ours(request: triton.ModelInferRequest) -> messages.ModelInferRequest:
    return messages.ModelInferRequest.FromString(request.SerializeToString())


def same(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype == object:
        return a.shape == b.shape and a.ravel().tolist() == b.ravel().tolist()
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@given(arrays(), st.booleans())
def test_tensors_of_a_client_are_read_bit_for_bit(typed: tuple[str, np.ndarray], raw: bool) -> None:  # noqa: FBT001
    datatype, array = typed
    raw = raw or datatype == "FP16" or not array.size
    request = codec.decode(ours(triton_request(datatype, array, raw=raw)))
    assert (request.id, request.outputs, request.binary) == ("r1", None, raw)
    (tensor,) = request.inputs
    assert (tensor.name, tensor.datatype) == ("x", datatype)
    assert same(tensor.array, array)


@given(arrays(), st.booleans())
def test_response_is_read_by_a_client_in_the_form_of_its_request(
    typed: tuple[str, np.ndarray],
    raw: bool,  # noqa: FBT001
) -> None:
    datatype, array = typed
    encoded = codec.encode([(Tensor("y", datatype, array), raw)], model="m", version="v", id_="r1")
    response = triton.ModelInferResponse.FromString(encoded)
    assert (response.model_name, response.model_version, response.id) == ("m", "v", "r1")
    (output,) = response.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("y", datatype, list(array.shape))
    assert len(response.raw_output_contents) == (1 if raw or datatype == "FP16" else 0)
    if response.raw_output_contents:
        data = memoryview(response.raw_output_contents[0])
        assert same(tensors.from_binary("y", datatype, array.shape, data), array)
    else:
        assert list(getattr(output.contents, contents_field(datatype))) == tensors.to_values(array)


def test_one_output_without_typed_contents_makes_all_raw() -> None:
    outputs = [
        (Tensor("a", "FP16", np.zeros(1, np.float16)), False),
        (Tensor("b", "INT64", np.zeros(1, np.int64)), False),
    ]
    encoded = codec.encode(outputs, model="m", version="v", id_="")
    response = triton.ModelInferResponse.FromString(encoded)
    assert list(map(len, response.raw_output_contents)) == [2, 8]
    assert not any(output.HasField("contents") for output in response.outputs)


def test_requested_outputs_are_named() -> None:
    request = triton_request("INT64", np.zeros(1, np.int64), raw=True)
    request.outputs.add(name="y")
    (output,) = codec.decode(ours(request)).outputs or ()
    assert (output.name, output.binary) == ("y", True)


def two_inputs_one_raw() -> triton.ModelInferRequest:
    request = triton_request("INT64", np.zeros(1, np.int64), raw=True)
    request.inputs.add(name="z", datatype="INT64", shape=[1])
    return request


def raw_and_typed() -> triton.ModelInferRequest:
    request = triton_request("INT64", np.zeros(1, np.int64), raw=True)
    request.inputs[0].contents.int64_contents.append(1)
    return request


def typed(datatype: str, field: str, values: list, shape: list[int], **more: int) -> triton.ModelInferRequest:
    request = triton.ModelInferRequest(model_name="m")
    tensor = request.inputs.add(name="x", datatype=datatype, shape=shape)
    getattr(tensor.contents, field).extend(values)
    for name, value in more.items():
        tensor.parameters[name].int64_param = value
    return request


def with_parameter(name: str, value: int) -> triton.ModelInferRequest:
    request = triton_request("INT64", np.zeros(1, np.int64), raw=True)
    request.parameters[name].int64_param = value
    return request


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (triton.ModelInferRequest(), "inputs: must be a list of 1 to 64 tensors, got []"),
        (two_inputs_one_raw(), "raw_input_contents: must have one element for each of the 2 inputs, got 1"),
        (
            raw_and_typed(),
            "inputs[0].contents: must be absent where raw_input_contents is given, got ['int64_contents']",
        ),
        (
            typed("INT8", "int_contents", [1, 300], [2]),
            "inputs[0].contents.int_contents: must be in the range of INT8, got",
        ),
        (
            typed("FP64", "fp64_contents", [1.0], [2]),
            "inputs[0].contents.fp64_contents: must have the 2 elements that shape [2] says, got 1",
        ),
        (
            typed("FP64", "fp32_contents", [1.0], [1]),
            "inputs[0].contents: must be fp64_contents for FP64, got ['fp32_contents']",
        ),
        (
            typed("FP16", "fp32_contents", [1.0], [1]),
            "raw_input_contents: must have the bytes of every input, as one has datatype FP16, got",
        ),
        (typed("BF16", "fp32_contents", [1.0], [1]), "inputs[0].datatype: must be one of BOOL"),
        (
            typed("FP32", "fp32_contents", [1.0], [-1]),
            "inputs[0].shape: must be a list of integers that are 0",
        ),
        (
            typed("FP32", "fp32_contents", [1.0], [1], shared_memory_byte_size=4),
            "inputs[0].parameters.shared_memory_byte_size: is not supported by this server, got 4",
        ),
        (with_parameter("sequence_id", 7), "parameters.sequence_id: is not supported by this server, got 7"),
    ],
)
def test_request_is_refused_by_field_rule_and_value(request_: triton.ModelInferRequest, message: str) -> None:
    with pytest.raises(errors.ApiError) as caught:
        codec.decode(ours(request_))
    assert caught.value.code == 400
    assert caught.value.message.startswith(message)
