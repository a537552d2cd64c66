"""`slipway.json`: a training program's description of the files it wrote. Pure, and light enough for
runtimes.

    {"framework": "sklearn", "metrics": {"accuracy": 0.97}, "sourceRevision": "4f2a9c1",
     "inputs": [{"name": "input", "datatype": "FP64", "shape": [-1, 64]}]}

Every field is optional. Errors name the field, the rule and the value.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serving import errors
from serving.resources import names

MAX_BYTES = 256 * 1024
"""Most bytes of `slipway.json`: its content becomes annotations of the image and a part of a status."""
_FIELDS = ("framework", "metrics", "sourceRevision", "inputs")
_FRAMEWORK = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_METRIC = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.@/]{0,126}[A-Za-z0-9])?")
_MAX_METRICS = 256
_MAX_REVISION = 256
DATATYPES = (
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "BYTES",
)
"""https://github.com/open-inference/open-inference-protocol: tensor data types (BF16 has no NumPy type)."""


@dataclass(frozen=True)
class Input:
    """One input tensor; `datatype` is one of `DATATYPES`, and -1 in the shape is any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class OutputManifest:
    """The content of `slipway.json`; defaults if there is none."""

    framework: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    source_revision: str = ""
    inputs: tuple[Input, ...] = ()


def parse(data: bytes) -> OutputManifest:
    """Parse and validate `slipway.json`.

    Raises:
        errors.Permanent: `InvalidManifest`; the message has the field, the rule and the value.
    """
    if len(data) > MAX_BYTES:
        raise _invalid("", f"must be at most {MAX_BYTES} bytes", len(data))
    try:
        raw = json.loads(data, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise _invalid("", f"must be JSON ({error})", data[:60]) from error
    if not isinstance(raw, dict):
        raise _invalid("", "must be an object", raw)
    for name, value in raw.items():
        if name not in _FIELDS:
            raise _invalid(name, f"is not known; known are {', '.join(_FIELDS)}", value)
    return OutputManifest(
        framework=_text(raw, "framework", _FRAMEWORK),
        metrics=_metrics(raw.get("metrics", {})),
        source_revision=_revision(raw.get("sourceRevision", "")),
        inputs=_inputs(raw.get("inputs", [])),
    )


def _invalid(where: str, rule: str, value: object) -> errors.Permanent:
    name = f"{names.MANIFEST_FILE}: {where}: " if where else f"{names.MANIFEST_FILE}: "
    shown = repr(value)
    return errors.Permanent(
        "InvalidManifest", f"{name}{rule}, got {shown if len(shown) < 80 else shown[:77] + '...'}"
    )


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = [name for name, _ in pairs]
    if len(set(fields)) != len(fields):
        raise ValueError(f"duplicate field {next(n for n in fields if fields.count(n) > 1)!r}")
    return dict(pairs)


def _text(raw: Mapping[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = raw.get(name, "")
    if not isinstance(value, str) or (value and not pattern.fullmatch(value)):
        raise _invalid(name, f"must be a string matching {pattern.pattern}", value)
    return value


def _revision(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MAX_REVISION or not value.isprintable():
        raise _invalid(
            "sourceRevision", f"must be a printable string of at most {_MAX_REVISION} characters", value
        )
    return value


def _metrics(value: Any) -> dict[str, float]:
    if not isinstance(value, dict) or len(value) > _MAX_METRICS:
        raise _invalid("metrics", f"must be an object of at most {_MAX_METRICS} numbers", value)
    for name, number in value.items():
        where = f"metrics[{name!r}]"
        if not _METRIC.fullmatch(name):
            raise _invalid(where, f"name must match {_METRIC.pattern}", name)
        if isinstance(number, bool) or not isinstance(number, int | float) or not _finite(number):
            raise _invalid(where, "must be a finite number", number)
    return {name: float(number) for name, number in value.items()}


def _finite(number: float) -> bool:
    try:
        return math.isfinite(float(number))
    except OverflowError:
        return False


def _inputs(value: Any) -> tuple[Input, ...]:
    if not isinstance(value, list) or len(value) > 1:
        raise _invalid("inputs", "must be a list of at most one tensor", value)
    return tuple(_input(f"inputs[{i}]", item) for i, item in enumerate(value))


def _input(where: str, item: Any) -> Input:
    if not isinstance(item, dict) or set(item) != {"name", "datatype", "shape"}:
        raise _invalid(where, "must have exactly name, datatype and shape", item)
    name, datatype, shape = item["name"], item["datatype"], item["shape"]
    if not isinstance(name, str) or not name or not name.isprintable():
        raise _invalid(f"{where}.name", "must be a printable, non-empty string", name)
    if datatype not in DATATYPES:
        raise _invalid(f"{where}.datatype", f"must be one of {', '.join(DATATYPES)}", datatype)
    sizes_ok = isinstance(shape, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and (n == -1 or n > 0) for n in shape
    )
    if not sizes_ok or not 1 <= len(shape) <= 8 or shape[0] != -1:
        raise _invalid(
            f"{where}.shape", "must be 1 to 8 sizes, the first -1 (the batch), others -1 or positive", shape
        )
    return Input(name, datatype, tuple(shape))
