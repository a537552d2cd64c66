"""Reads MLflow's files: a run's directory with its metrics, and the MLmodel file of a logged model.

Formats, as of MLflow 2 and 3: https://mlflow.org/docs/latest/ml/model/ (MLmodel);
mlflow/store/tracking/file_store.py (a run's directory: meta.yaml, metrics/NAME with lines of
`timestamp value step`).
"""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from serving import errors

MLMODEL = "MLmodel"
_META = "meta.yaml"
_PICKLE = "model.pkl"
"""Name of a renamed pickle."""
_MAX_BYTES = 1024 * 1024
"""Largest file that is read as metadata."""
_LAST_BYTES = 4096
"""Bytes at the end of a metric's file, which has a short line for each step, that have its last line."""
_MAX_PARENTS = 8
"""Parents of a model that are searched for its run's directory: the artifact path may have several parts."""
_MAX_METRICS = 256
_MAX_DIMENSIONS = 8
"""Most metrics, and most dimensions of a tensor, that slipway.json may have (`output_manifest`)."""
_FRAMEWORKS = (
    "sklearn",
    "pytorch",
    "transformers",
    "sentence_transformers",
    "onnx",
    "xgboost",
    "lightgbm",
    "catboost",
    "tensorflow",
    "keras",
)
"""Flavors that are frameworks, the first of a model's counts; every model has `python_function` too."""
_DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
}
"""Datatypes of the Open Inference Protocol by numpy's names."""


@dataclass(frozen=True)
class About:
    """MLflow's metadata of a model."""

    framework: str
    """Empty where no flavor is a framework."""
    run_id: str
    """Empty where there is no run."""
    metrics: Mapping[str, float]
    """The last value of each metric."""
    renamed: Mapping[str, str]
    """Name that the runtime loads, by path in the model's directory, of files with another name."""
    inputs: tuple[Mapping[str, object], ...]
    """Input tensors, at most one: `inputs` of slipway.json."""


def model_of(path: Path) -> Path | None:
    """Return the directory of the model that `path` is, or that the run at `path` has logged; else None.

    Raises:
        errors.UserError: the run has logged several models, or none.
    """
    if (path / MLMODEL).is_file():
        return path
    if not (path / _META).is_file() or not (path / "artifacts").is_dir():
        return None
    models = sorted(file.parent for file in (path / "artifacts").rglob(MLMODEL))
    if len(models) == 1:
        return models[0]
    listed = "".join(f"\n  {model}" for model in models)
    raise errors.UserError(
        f"{path}: this MLflow run has logged {len(models)} models below artifacts"
        + (f", name one:{listed}" if models else "; name a directory that has an MLmodel file")
    )


def describe(model: Path) -> About:
    """Return the metadata of the MLmodel file and of the run.

    Raises:
        errors.UserError: the MLmodel file cannot be read, or names files that no runtime loads.
    """
    document = _yaml(model / MLMODEL)
    flavors = document.get("flavors")
    if not isinstance(flavors, dict) or not flavors:
        raise errors.UserError(f"{model / MLMODEL}: flavors: must be an object, got {flavors!r}")
    framework = next((name for name in _FRAMEWORKS if name in flavors), "")
    run = _run(model)
    run_id = str(document.get("run_id") or (_yaml(run / _META).get("run_id", "") if run else ""))
    renamed = _sklearn(model, flavors["sklearn"]) if framework == "sklearn" else {}
    metrics = dict(_metrics(run / "metrics")) if run is not None else {}
    return About(
        framework.replace("_", "-"), run_id, metrics, renamed, tuple(_inputs(document.get("signature")))
    )


def _sklearn(model: Path, flavor: Any) -> Mapping[str, str]:
    """Return `About.renamed`: the runtime loads `model.pkl` or `model.joblib`, MLflow allows any name."""
    named = str((flavor or {}).get("pickled_model", _PICKLE))
    if not (model / named).is_file() or Path(named).suffix not in (".pkl", ".joblib"):
        raise errors.UserError(
            f"{model / MLMODEL}: flavors.sklearn.pickled_model: must be a .pkl file beside it, got {named!r}"
        )
    if named in (_PICKLE, "model.joblib"):
        return {}
    if (model / _PICKLE).exists():
        raise errors.UserError(
            f"{model / MLMODEL}: flavors.sklearn.pickled_model: {named!r} gets in the image the name"
            f" {_PICKLE!r}, which another file has: remove that file"
        )
    return {named: _PICKLE}


def _run(model: Path) -> Path | None:
    """Return the directory of the run (in MLflow 3, of the logged model) of a model.

    It is the nearest parent that has a meta.yaml. None without one, or if that has no metrics beside it, as
    that of an experiment.
    """
    for directory in list(model.parents)[:_MAX_PARENTS]:
        if (directory / _META).is_file():
            return directory if (directory / "metrics").is_dir() else None
    return None


def _metrics(directory: Path) -> Iterator[tuple[str, float]]:
    """Yield name and last value of each metric, with names that slipway.json allows."""
    paths = [path for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink()]
    for path in paths[:_MAX_METRICS]:
        name = re.sub(r"[^-A-Za-z0-9_.@/]+", "_", str(path.relative_to(directory)))
        name = name.lstrip("-_.@/")[:128].rstrip("-_.@/")
        lines = _end(path).splitlines()
        try:
            value = float(lines[-1].split()[1])
        except (IndexError, ValueError):
            continue
        if name and math.isfinite(value):
            yield name, value


def _inputs(signature: Any) -> Iterator[Mapping[str, object]]:
    """Yield the input tensor where the signature has exactly one, with the batch as its first dimension."""
    try:
        (tensor,) = json.loads((signature or {})["inputs"])
        spec = tensor["tensor-spec"]
        shape, datatype = [int(size) for size in spec["shape"]], _DATATYPES[spec["dtype"]]
    except (KeyError, TypeError, ValueError):
        return
    has_batch = 1 <= len(shape) <= _MAX_DIMENSIONS and shape[0] == -1
    if has_batch and all(size == -1 or size > 0 for size in shape):
        yield {"name": str(tensor.get("name") or "input"), "datatype": datatype, "shape": shape}


def _yaml(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        raise errors.UserError(f"{path}: must be YAML: {error}") from error
    if not isinstance(document, dict):
        raise errors.UserError(f"{path}: must be an object, got {type(document).__name__}")
    return document


def _end(path: Path) -> str:
    """Return the last `_LAST_BYTES` of a file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            return file.read(_LAST_BYTES).decode(errors="replace")
    except OSError as error:
        raise errors.UserError(f"{path}: cannot be read: {error}") from error


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise errors.UserError(f"{path}: cannot be read: {error}") from error
    if len(data) > _MAX_BYTES:
        raise errors.UserError(f"{path}: must have at most {_MAX_BYTES} bytes")
    return data.decode(errors="replace")
