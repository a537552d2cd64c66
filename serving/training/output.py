"""The output directory of a training program, and the manifest that completes it."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serving import errors
from serving.resources import names


def output_directory() -> Path:
    """Return the directory of the model.

    Raises:
        errors.UserError: `$SLIPWAY_OUTPUT_DIR` is not set.
    """
    output = os.environ.get(names.OUTPUT_DIR_ENV)
    if not output:
        raise errors.UserError(f"{names.OUTPUT_DIR_ENV}: must be set to the directory of the model")
    return Path(output)


def write_manifest(
    framework: str,
    metrics: dict[str, float],
    output: Path,
    *,
    source: Path,
    inputs: Sequence[dict[str, Any]] = (),
) -> None:
    """Write the manifest; the digest of the training program `source` is its revision, if none is set.

    `inputs` are the model's input tensors, as `{"name": "input", "datatype": "FP64", "shape": [-1, 64]}`.
    """
    revision = f"sha256:{hashlib.sha256(source.read_bytes()).hexdigest()}"
    manifest = {
        "framework": framework,
        "metrics": metrics,
        "sourceRevision": os.environ.get("SOURCE_REVISION") or revision,
        "inputs": list(inputs),
    }
    partial = output / f".{names.MANIFEST_FILE}.partial"
    partial.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(output / names.MANIFEST_FILE)
