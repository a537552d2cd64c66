"""The codec of the inference protocol: round trips in both forms, and no crash on any bytes."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from serving import errors
from serving.runtimes.open_inference import protocol, tensors
from serving.runtimes.open_inference.protocol import Tensor

NUMERIC = [name for name in tensors.DTYPES if name != "BYTES"]
SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)


@st.composite
def arrays(draw: st.DrawFn, *, text: bool) -> tuple[str, np.ndarray]:
    datatype = draw(st.sampled_from(list(tensors.DTYPES)))
    shape = draw(SHAPES)
    if datatype == "BYTES":
        count = int(np.prod(shape))
        item = st.text(max_size=6).map(str.encode) if text else st.binary(max_size=6)
        array = np.empty(count, dtype=object)
        array[:] = draw(st.lists(item, min_size=count, max_size=count))
        return datatype, array.reshape(shape)
    dtype = tensors.DTYPES[datatype]
    finite = {"allow_nan": False, "allow_infinity": False} if text and dtype.kind == "f" else {}
    return datatype, draw(hnp.arrays(dtype, shape, elements=hnp.from_dtype(dtype, **finite)))


def request_of(name: str, datatype: str, array: np.ndarray, *, binary: bool) -> tuple[bytes, str | None]:
    item: dict = {"name": name, "datatype": datatype, "shape": list(array.shape)}
    blob = b""
    if binary:
        blob = tensors.to_binary(array)
        item["parameters"] = {"binary_data_size": len(blob)}
    else:
        item["data"] = tensors.to_json("x", array)
    head = json.dumps({"inputs": [item]}).encode()
    return head + blob, str(len(head)) if binary else None


def same(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype == object:
        return a.shape == b.shape and a.ravel().tolist() == b.ravel().tolist()
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@given(arrays(text=False))
def test_binary_tensors_round_trip_bit_for_bit(typed_array: tuple[str, np.ndarray]) -> None:
    datatype, array = typed_array
    body, length = request_of("x", datatype, array, binary=True)
    (tensor,) = protocol.decode(body, length).inputs
    assert (tensor.name, tensor.datatype) == ("x", datatype)
    assert same(tensor.array, array)


@given(arrays(text=True))
def test_json_tensors_round_trip(typed_array: tuple[str, np.ndarray]) -> None:
    datatype, array = typed_array
    body, length = request_of("x", datatype, array, binary=False)
    (tensor,) = protocol.decode(body, length).inputs
    assert tensor.array.shape == array.shape
    assert tensor.array.ravel().tolist() == array.ravel().tolist()


@given(arrays(text=True).filter(lambda typed_array: typed_array[1].size > 0))
def test_nested_data_equals_flat_data(typed_array: tuple[str, np.ndarray]) -> None:
    datatype, array = typed_array
    if datatype == "BYTES":
        array = np.vectorize(bytes.decode, otypes=[object])(array)
    nested = tensors.from_json("x", datatype, array.shape, array.tolist())
    flat = tensors.from_json("x", datatype, array.shape, array.ravel().tolist())
    assert same(nested, flat)


@given(st.lists(arrays(text=True), min_size=1, max_size=3), st.lists(st.booleans(), min_size=3, max_size=3))
def test_responses_with_json_and_binary_tensors_are_readable(
    typed_arrays: list[tuple[str, np.ndarray]], binary: list[bool]
) -> None:
    outputs = [
        (Tensor(f"o{i}", datatype, array), flag)
        for i, ((datatype, array), flag) in enumerate(zip(typed_arrays, binary, strict=False))
    ]
    body, length = protocol.encode(outputs, model="m", version="v", id_="7")
    size = len(body) if length is None else length
    document = json.loads(body[:size])
    assert (document["model_name"], document["model_version"], document["id"]) == ("m", "v", "7")
    assert (length is not None) == any(flag for _, flag in outputs)
    as_request = json.dumps({"inputs": document["outputs"]}).encode()
    decoded = protocol.decode(as_request + body[size:], str(len(as_request)))
    for tensor, (output, _) in zip(decoded.inputs, outputs, strict=True):
        assert tensor.array.ravel().tolist() == output.array.ravel().tolist()


@given(arrays(text=False).filter(lambda f: f[1].size > 0), st.data())
def test_truncated_binary_is_refused_with_the_field(typed_array: tuple[str, np.ndarray], data) -> None:
    body, length = request_of("x", *typed_array, binary=True)
    cut = data.draw(st.integers(int(length or 0), len(body) - 1))
    with pytest.raises(errors.ApiError, match=r"inputs\[0\]\.parameters\.binary_data_size") as caught:
        protocol.decode(body[:cut], length)
    assert caught.value.code == 400


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["FP64", "INT8", "BYTES", "BOOL", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "name",
                    "datatype",
                    "shape",
                    "data",
                    "parameters",
                    "inputs",
                    "outputs",
                    "binary_data_size",
                    "binary_data",
                    "binary_data_output",
                    "id",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
INPUTS = st.fixed_dictionaries(
    {
        "name": st.just("x"),
        "datatype": st.sampled_from(list(tensors.DTYPES)),
        "shape": JSON | st.lists(st.integers(-1, 2**40), max_size=3),
    },
    optional={
        "data": JSON,
        "parameters": st.dictionaries(st.just("binary_data_size"), st.integers(-1, 2**40) | JSON),
    },
)


@given(
    (JSON | st.fixed_dictionaries({"inputs": st.lists(INPUTS, max_size=2)}, optional={"outputs": JSON})).map(
        lambda d: json.dumps(d).encode()
    )
    | st.binary(max_size=60),
    st.binary(max_size=40),
    st.none() | st.integers(-2, 300).map(str) | st.text(max_size=4),
)
def test_any_bytes_are_decoded_or_refused_with_400(head: bytes, tail: bytes, length: str | None) -> None:
    assert code_of(head + tail, length) in {200, 400}


def code_of(body: bytes, length: str | None) -> int:
    try:
        protocol.decode(body, length)
    except errors.ApiError as error:
        return error.code
    return 200


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "inputs: must be a list of 1 to 64 tensors, got None"),
        (
            {"inputs": [{"name": "x", "datatype": "FP65", "shape": [1], "data": [1]}]},
            "inputs[0].datatype: must be one of",
        ),
        (
            {"inputs": [{"name": "x", "datatype": ["FP64"], "shape": [1], "data": [1]}]},
            "inputs[0].datatype: must be one of BOOL, ",
        ),
        (
            {"inputs": [{"name": "x", "datatype": {}, "shape": [1], "data": [1]}]},
            "inputs[0].datatype: must be one of BOOL, ",
        ),
        (
            {"inputs": [{"name": "x", "datatype": "FP64", "shape": [-1], "data": [1]}]},
            "inputs[0].shape: must be a list of integers",
        ),
        (
            {"inputs": [{"name": "x", "datatype": "FP64", "shape": [2], "data": [1]}]},
            "inputs[0].data: must have the 2 elements",
        ),
        (
            {"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [128]}]},
            "inputs[0].data: must be in the range of INT8",
        ),
        (
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1e300]}]},
            "inputs[0].data: must be in the range of FP32",
        ),
        (
            {"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1.5]}]},
            "inputs[0].data: must be elements of INT8, got 1.5",
        ),
        (
            {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [True]}]},
            "must be elements of FP64, got True",
        ),
        (
            {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [None]}]},
            "must be elements of FP64, got None",
        ),
        (
            {"inputs": [{"name": "x", "datatype": "FP64", "shape": [2, 2], "data": [[1, 2], [3]]}]},
            "flat or nested as shape",
        ),
        (
            {
                "inputs": [
                    {
                        "name": "x",
                        "datatype": "BOOL",
                        "shape": [1],
                        "data": [True],
                        "parameters": {"shared_memory_region": "r"},
                    }
                ]
            },
            "inputs[0].parameters.shared_memory_region: is not supported",
        ),
        (
            {"inputs": [{"name": "x", "datatype": "BOOL", "shape": [1], "data": [True]}] * 2},
            "inputs[1].name: must not be given twice",
        ),
        (
            {
                "inputs": [{"name": "x", "datatype": "BOOL", "shape": [1], "data": [True]}],
                "outputs": [{"name": 1}],
            },
            "outputs[0].name: must be a non-empty string, got 1",
        ),
    ],
)
def test_an_invalid_request_is_refused_with_field_rule_and_value(document: dict, message: str) -> None:
    with pytest.raises(errors.ApiError) as caught:
        protocol.decode(json.dumps(document).encode(), None)
    assert message in str(caught.value)
    assert caught.value.code == 400


def test_bytes_after_the_last_tensor_are_refused() -> None:
    body, length = request_of("x", "INT8", np.zeros(3, np.int8), binary=True)
    with pytest.raises(errors.ApiError, match="body: must end after"):
        protocol.decode(body + b"\0", length)


def test_a_huge_shape_is_refused_before_memory_is_allocated() -> None:
    item = {"name": "x", "datatype": "BYTES", "shape": [2**40, 2**40], "parameters": {"binary_data_size": 0}}
    head = json.dumps({"inputs": [item]}).encode()
    with pytest.raises(errors.ApiError, match="must hold"):
        protocol.decode(head, str(len(head)))


@pytest.mark.parametrize("datatype", ["FP64", "BYTES"])
@pytest.mark.parametrize("shape", [[1] * 65, [0, 2**62, 2**62], [0, 2**63]], ids=["rank", "strides", "size"])
@pytest.mark.parametrize("binary", [False, True])
def test_a_shape_that_no_array_has_is_refused_with_400(
    datatype: str, shape: list[int], *, binary: bool
) -> None:
    item: dict = {"name": "x", "datatype": datatype, "shape": shape}
    values = [1.0] if datatype == "FP64" else ["1"]
    blob = b""
    if binary:
        blob = np.ones(1).tobytes() if datatype == "FP64" else b"\1\0\0\0x"
        blob = blob if 0 not in shape else b""
        item["parameters"] = {"binary_data_size": len(blob)}
    else:
        item["data"] = values if 0 not in shape else []
    head = json.dumps({"inputs": [item]}).encode()
    with pytest.raises(errors.ApiError, match=r"inputs\[0\]") as caught:
        protocol.decode(head + blob, str(len(head)) if binary else None)
    assert caught.value.code == 400


def test_a_value_that_json_cannot_represent_is_refused_with_a_remedy() -> None:
    tensor = Tensor("p", "FP64", np.array([np.nan]))
    with pytest.raises(errors.ApiError, match="ask for it with binary_data"):
        protocol.encode([(tensor, False)], model="m", version="v", id_="")
    assert protocol.encode([(tensor, True)], model="m", version="v", id_="")[1] is not None
