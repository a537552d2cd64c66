"""The files in which an ONNX model keeps its tensors, and which of them count as data in an image."""

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import protobuf
from serving.images.file_formats import message_fields, model_tree, onnx_tensors
from serving.images.file_formats.content import HEAD, Content
from tests.objects.models.model_files import onnx, pickled, safetensors

TENSORS = b"\x00\xff\x9c" * 9


def files(path: str, data: bytes) -> set[str]:
    return set(onnx_tensors.files(path, Content(io.BytesIO(data), len(data))))


def tensor(location: str) -> bytes:
    entry = protobuf.field(1, b"location") + protobuf.field(2, location.encode())
    offset = protobuf.field(1, b"offset") + protobuf.field(2, b"4096")
    return protobuf.field(13, offset) + protobuf.field(13, entry)


def test_locations_are_below_the_directory_of_their_model() -> None:
    model = onnx("model.onnx.data", "parts/2.onnx_data", "../beside.onnx_data")
    assert files("deep/model.onnx", model) == {
        "deep/model.onnx.data",
        "deep/parts/2.onnx_data",
        "beside.onnx_data",
    }


def test_locations_are_found_in_constants_subgraphs_and_functions() -> None:
    def node(attribute: bytes) -> bytes:
        real = bytes([2 << 3 | 5]) + b"\0\0\x80\x3f"
        return protobuf.field(5, protobuf.field(1, b"name") + real + attribute)

    constant = node(protobuf.field(5, tensor("a")) + protobuf.field(10, tensor("b")))
    branches = node(
        protobuf.field(6, protobuf.field(1, constant)) + protobuf.field(11, protobuf.field(5, tensor("c")))
    )
    function = protobuf.field(7, node(protobuf.field(5, tensor("d"))))
    model = protobuf.field(7, protobuf.field(1, branches)) + protobuf.field(25, function)
    assert files("model.onnx", model) == {"a", "b", "c", "d"}


def test_tensors_in_the_model_are_skipped() -> None:
    model = protobuf.field(7, protobuf.field(5, protobuf.field(9, bytes(3 * HEAD)) + tensor("a")))
    assert files("model.onnx", model) == {"a"}


def test_a_model_with_too_many_fields_names_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_tensors, "MOST_FIELDS", 20)
    assert files("model.onnx", onnx("a"))
    assert not files("model.onnx", onnx(*"abcdefghijk"))
    assert message_fields.MOST_FIELDS > 20


@given(st.binary(max_size=200))
def test_any_bytes_name_files_or_none(data: bytes) -> None:
    files("model.onnx", data)
    files("model.onnx", protobuf.field(7, protobuf.field(5, protobuf.field(13, data))))


@pytest.mark.parametrize(
    ("model", "data", "code"),
    [
        (onnx("model.onnx.data"), TENSORS, set()),
        (onnx("other.onnx.data"), TENSORS, {"model.onnx.data"}),
        (None, TENSORS, {"model.onnx.data"}),
        (onnx("model.onnx.data")[:-1], TENSORS, {"model.onnx", "model.onnx.data"}),
        (onnx("model.onnx.data"), gzip.compress(pickled()), {"model.onnx.data"}),
        (None, bytes(64) + pickled(), {"model.onnx.data"}),
    ],
    ids=["named", "not named", "no model", "broken model", "gzip", "zeros before a pickle"],
)
def test_raw_tensors_of_an_image_are_data_where_its_model_names_them(
    tmp_path: Path, model: bytes | None, data: bytes, code: set[str]
) -> None:
    contents = {"model.onnx": model, "model.onnx.data": data, "model.safetensors": safetensors()}
    present = {name: content for name, content in contents.items() if content is not None}
    for name, content in present.items():
        (tmp_path / name).write_bytes(content)
    assert set(model_tree.with_code(tmp_path, present)) == code
