"""Bodies of inference requests from a model's metadata: small values, random and reproducible by a seed."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from serving.errors import Permanent

_BODIES = 16
"""Most different bodies, which are sent in turn."""
_BYTES = 4_000_000
"""Most bytes of all bodies together: large inputs get fewer bodies."""
_ELEMENTS = 2_000_000
"""Most elements of one input: as JSON, tens of megabytes."""
_INTEGERS = {"INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"}
_FLOATS = {"FP16", "FP32", "FP64"}
_WORDS = ("a", "small", "text", "of", "no", "meaning")


def bodies(inputs: object, *, batch: int, seed: int) -> list[bytes]:
    """Return bodies for the inputs of a model's metadata.

    A size of -1 means the batch in the first axis, and 1 in others.

    Raises:
        Permanent: `LoadFailed`, `inputs` is not a list, or an input has no name, no valid shape, more than
            _ELEMENTS elements, or a datatype that JSON cannot hold.
    """
    if not isinstance(inputs, list):
        raise _invalid("inputs", "is not a list", inputs)
    draw = np.random.default_rng(seed)
    body = _body(inputs, batch, draw)
    count = max(1, min(_BODIES, _BYTES // len(body)))
    return [body, *(_body(inputs, batch, draw) for _ in range(count - 1))]


def _body(inputs: Sequence[Any], batch: int, draw: np.random.Generator) -> bytes:
    tensors = [_tensor(f"inputs[{index}]", metadata, batch, draw) for index, metadata in enumerate(inputs)]
    return json.dumps({"inputs": tensors}, separators=(",", ":")).encode()


def _tensor(field: str, metadata: Any, batch: int, draw: np.random.Generator) -> dict[str, Any]:
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise _invalid(field, "has no name", metadata)
    sizes = metadata.get("shape")
    if not isinstance(sizes, list) or not all(isinstance(size, int) and size >= -1 for size in sizes):
        raise _invalid(f"{field}.shape", "is not a list of sizes", sizes)
    shape = [size if size >= 0 else (batch if axis == 0 else 1) for axis, size in enumerate(sizes)]
    count = math.prod(shape)
    if count > _ELEMENTS:
        raise _invalid(f"{field}.shape", f"has more than {_ELEMENTS} elements", shape)
    return {
        "name": metadata["name"],
        "datatype": metadata.get("datatype"),
        "shape": shape,
        "data": _values(f"{field}.datatype", metadata.get("datatype"), count, draw),
    }


def _values(field: str, datatype: Any, count: int, draw: np.random.Generator) -> list[Any]:
    values: list[Any]
    if not isinstance(datatype, str):
        raise _invalid(field, "is not text", datatype)
    if datatype in _FLOATS:
        values = draw.random(count).round(3).tolist()
    elif datatype in _INTEGERS:
        values = draw.integers(0, 10, count).tolist()
    elif datatype == "BOOL":
        values = (draw.random(count) < 0.5).tolist()
    elif datatype == "BYTES":
        values = [_WORDS[index] for index in draw.integers(0, len(_WORDS), count)]
    else:
        raise _invalid(field, "cannot be sent as JSON", datatype)
    return values


def _invalid(field: str, why: str, value: object) -> Permanent:
    return Permanent(
        "LoadFailed",
        f"the model's {field} {why}: {json.dumps(value, default=str)[:100]};"
        " give load.requestTemplate or load.requests",
    )
