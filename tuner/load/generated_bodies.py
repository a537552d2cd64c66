"""Bodies of inference requests made from what a model says of its inputs; values are small, random, and by a seed the same."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from serving.errors import Permanent

_BODIES = 16
_BYTES = 4_000_000
"""Of all bodies together: large inputs get fewer of them."""
_ELEMENTS = 2_000_000
"""Of one input as JSON: tens of megabytes, which nobody sends."""
_INTEGERS = {"INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"}
_FLOATS = {"FP16", "FP32", "FP64"}
_WORDS = ("a", "small", "text", "of", "no", "meaning")


def made(inputs: object, *, batch: int, seed: int) -> list[bytes]:
    """Return bodies for the inputs of a model's metadata; a size of -1 is the batch where it is the first, else 1.

    Raises:
        Permanent: `LoadFailed`: no list, or an input without a name, with a datatype or shape that JSON cannot hold.
    """
    if not isinstance(inputs, list):
        raise _cannot("inputs", "is no list", inputs)
    draw = np.random.default_rng(seed)
    first = _body(inputs, batch, draw)
    count = max(1, min(_BODIES, _BYTES // len(first)))
    return [first, *(_body(inputs, batch, draw) for _ in range(count - 1))]


def _body(inputs: Sequence[Any], batch: int, draw: np.random.Generator) -> bytes:
    tensors = [_tensor(f"inputs[{index}]", one, batch, draw) for index, one in enumerate(inputs)]
    return json.dumps({"inputs": tensors}, separators=(",", ":")).encode()


def _tensor(field: str, described: Any, batch: int, draw: np.random.Generator) -> dict[str, Any]:
    if not isinstance(described, dict) or not isinstance(described.get("name"), str):
        raise _cannot(field, "has no name", described)
    sizes = described.get("shape")
    if not isinstance(sizes, list) or not all(isinstance(size, int) and size >= -1 for size in sizes):
        raise _cannot(f"{field}.shape", "is no list of sizes", sizes)
    shape = [size if size >= 0 else (batch if axis == 0 else 1) for axis, size in enumerate(sizes)]
    count = math.prod(shape)
    if count > _ELEMENTS:
        raise _cannot(f"{field}.shape", f"has more than {_ELEMENTS} elements", shape)
    return {
        "name": described["name"], "datatype": described.get("datatype"), "shape": shape,
        "data": _values(f"{field}.datatype", described.get("datatype"), count, draw),
    }  # fmt: skip


def _values(field: str, datatype: Any, count: int, draw: np.random.Generator) -> list[Any]:
    found: list[Any]
    if not isinstance(datatype, str):
        raise _cannot(field, "is no text", datatype)
    if datatype in _FLOATS:
        found = draw.random(count).round(3).tolist()
    elif datatype in _INTEGERS:
        found = draw.integers(0, 10, count).tolist()
    elif datatype == "BOOL":
        found = (draw.random(count) < 0.5).tolist()
    elif datatype == "BYTES":
        found = [_WORDS[index] for index in draw.integers(0, len(_WORDS), count)]
    else:
        raise _cannot(field, "cannot be sent as JSON", datatype)
    return found


def _cannot(field: str, why: str, value: object) -> Permanent:
    return Permanent(
        "LoadFailed",
        f"the model's {field} {why}: {json.dumps(value, default=str)[:100]}; give load.requestTemplate or load.requests",
    )
