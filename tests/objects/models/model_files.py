"""The bytes of model files in the formats that Slipway recognises, and of programs under their names."""

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from serving import protobuf


class Calls:
    """An object whose pickle calls `print` when it is loaded."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return print, ("called",)


def pickled(value: Any = None, protocol: int = 4) -> bytes:
    """Return a pickle; by default of an object whose pickle calls a function."""
    return pickle.dumps(Calls() if value is None else value, protocol)


def safetensors(tensors: Mapping[str, bytes] | None = None, padding: int = 0) -> bytes:
    """Return a safetensors file of byte tensors, with spaces behind its header."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, content in (tensors or {"weight": b"\1\2\3\4"}).items():
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": "U8", "shape": [len(content)], "data_offsets": offsets}
        data += content
    text = json.dumps(header).encode() + b" " * padding
    return struct.pack("<Q", len(text)) + text + data


def onnx(*locations: str) -> bytes:
    """Return an ONNX model: version of the format, producer, and a graph of a tensor for each location."""
    tensors = (
        protobuf.field(13, protobuf.field(1, b"location") + protobuf.field(2, location.encode()))
        for location in locations
    )
    graph = b"\x12\x01g" + b"".join(protobuf.field(5, tensor) for tensor in tensors)
    return protobuf.varint(1, 8) + protobuf.field(2, b"tests") + protobuf.field(7, graph)


def sentence_piece() -> bytes:
    """Return a SentencePiece model of two pieces."""
    return protobuf.field(1, b"\x0a\x03<s>") + protobuf.field(1, b"\x0a\x01a") + protobuf.field(2, b"")


def npy(array: Any = (1.0, 2.0)) -> bytes:
    """Return a NumPy file; an array of objects is a pickle in it."""
    out = io.BytesIO()
    np.save(out, np.asarray(array), allow_pickle=True)
    return out.getvalue()


def zipped(members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def torch(data: bytes | None = None) -> bytes:
    """Return an archive as `torch.save` writes it: a pickle beside raw tensors."""
    return zipped({"archive/data.pkl": data or pickled(), "archive/data/0": b"\x00\xff" * 8})


def skops(**members: bytes) -> bytes:
    """Return an archive as skops writes it: a schema beside arrays."""
    schema = json.dumps({"__class__": "LogisticRegression", "__loader__": "ObjectNode"}).encode()
    return zipped({"schema.json": schema, "1.npy": npy(), **members})
