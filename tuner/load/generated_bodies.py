"""Bodies of inference requests from a model's metadata: small values, random and reproducible by a seed."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from serving.errors import Permanent

_BODIES = 16
"""Most different bodies, which are sent in turn."""
_BYTES = 4_000_000
"""Most bytes of all bodies together: large inputs get fewer bodies."""
_ELEMENTS = 2_000_000
"""Most elements of all inputs together: as JSON, tens of megabytes."""
_INTEGERS = {"INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"}
_FLOATS = {"FP16", "FP32", "FP64"}
_WORDS = ("a", "small", "text", "of", "no", "meaning")


class _Input(NamedTuple):
    """One input of the model, with the shape that requests give it."""

    field: str
    """Its place in the metadata, for messages."""
    name: str
    datatype: Any
    shape: list[int]
    elements: int
    """Their number."""


def bodies(inputs: object, *, batch: int, seed: int) -> list[bytes]:
    """Return bodies for the inputs of a model's metadata.

    A size of -1 means the batch in the first axis, and 1 in others.

    Raises:
        Permanent: `LoadFailed`, `inputs` is not a list, an input has no name, no valid shape, or a datatype
            that JSON cannot hold, or all inputs have more than _ELEMENTS elements together.
    """
    if not isinstance(inputs, list):
        raise _invalid("inputs", "is not a list", inputs)
    # Before the first value is drawn: the inputs of a small description may have any number of elements.
    known = _read_inputs(inputs, batch)
    draw = np.random.default_rng(seed)
    body = _body(known, draw)
    count = max(1, min(_BODIES, _BYTES // len(body)))
    return [body, *(_body(known, draw) for _ in range(count - 1))]


def _read_inputs(inputs: Sequence[Any], batch: int) -> list[_Input]:
    known: list[_Input] = []
    remaining = _ELEMENTS
    for index, metadata in enumerate(inputs):
        field = f"inputs[{index}]"
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            raise _invalid(field, "has no name", metadata)
        sizes = metadata.get("shape")
        if not isinstance(sizes, list) or not all(isinstance(size, int) and size >= -1 for size in sizes):
            raise _invalid(f"{field}.shape", "is not a list of sizes", sizes)
        shape = [size if size >= 0 else (batch if axis == 0 else 1) for axis, size in enumerate(sizes)]
        count = _count(shape, remaining)
        if count > remaining:
            rule = f"has more than {_ELEMENTS} elements, with those of the inputs before it"
            raise _invalid(f"{field}.shape", rule, shape)
        remaining -= count
        known.append(_Input(field, metadata["name"], metadata.get("datatype"), shape, count))
    return known


def _count(shape: Sequence[int], most: int) -> int:
    """Return the number of elements, or any number above `most` if there are more.

    The whole product of thousands of sizes has thousands of digits, and takes seconds.
    """
    if 0 in shape:
        return 0
    count = 1
    for size in shape:
        count *= size
        if count > most:
            break
    return count


def _body(inputs: Sequence[_Input], draw: np.random.Generator) -> bytes:
    tensors = [
        {
            "name": each.name,
            "datatype": each.datatype,
            "shape": each.shape,
            "data": _values(f"{each.field}.datatype", each.datatype, each.elements, draw),
        }
        for each in inputs
    ]
    return json.dumps({"inputs": tensors}, separators=(",", ":")).encode()


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
