"""`slipway model import`: a directory on this machine becomes a ModelVersion, with what its tool says of it.

What needs a `slipway.json`, other names or no links is built from a copy below the data directory; the user's directory is
only read.
"""

import json
import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving import clock, errors
from serving.cli.model import creation, formats
from serving.cli.model.formats import Found
from serving.cli.model.pull import label
from serving.cli.model.store import data_dir
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.data_dir import DataDir
from serving.images.documents import output_manifest
from serving.planning.models.version import is_finished
from serving.resources import kinds, names

if TYPE_CHECKING:
    from serving.kube import Kube

_REVISION_SHOWN = 12


def import_(directory: Path, model: str, version: str, framework: str, meant: Target, timeout: float) -> None:
    """Make the version and follow it."""
    where = data_dir(meant)
    found = formats.recognise(directory)
    said = framework or found.framework
    name = version or default_name(model, found, clock.now())

    async def work(kube: "Kube") -> None:
        await _sweep(kube, where)
        copy = where.imports / meant.namespace / name
        path = _prepared(found, said, copy)
        by = f"slipway model import {found.root} ({found.kind})"
        wanted = creation.version(meant.namespace, name, model, {"path": str(path)}, said, by)
        try:
            await creation.make(kube, wanted, timeout)
        finally:
            await _sweep(kube, where)

    with_kube(meant.kubeconfig, work)


def default_name(model: str, found: Found, now: datetime) -> str:
    """Return the Model and the run's or snapshot's id; for plain files the time, as nothing else tells them apart."""
    return label(f"{model}-{found.revision[:_REVISION_SHOWN] or now.strftime('%Y%m%d-%H%M%S')}")


def described(found: Found, framework: str) -> dict[str, Any]:
    """Return the `slipway.json` of a foreign layout; empty where there is nothing to say."""
    said = {
        "framework": framework, "metrics": dict(found.metrics), "sourceRevision": found.revision,
        "inputs": [dict(tensor) for tensor in found.inputs],
    }  # fmt: skip
    return {key: value for key, value in said.items() if value}


def _prepared(found: Found, framework: str, copy: Path) -> Path:
    """Return the directory to build from: the user's, or a copy of it.

    Raises:
        errors.UserError: it cannot be copied as it is.
        errors.Permanent: `InvalidManifest`, what the foreign tool says cannot be said in a slipway.json.
    """
    own = (found.root / names.MANIFEST_FILE).exists()
    about = {} if own or found.kind == "directory" else described(found, framework)
    if not about and not found.renamed and found.links_within is None:
        return found.root
    data = json.dumps(about, indent=2).encode()
    output_manifest.parse(data)
    print(f"{found.kind} {found.root}: copying", file=sys.stderr, flush=True)
    try:
        _copy(found, copy)
        if about:
            (copy / names.MANIFEST_FILE).write_bytes(data)
    except FileExistsError as error:
        raise errors.UserError(f"an import of that name is under way: {error}") from error
    except (OSError, errors.UserError):
        shutil.rmtree(copy, ignore_errors=True)
        raise
    return copy


def _copy(found: Found, copy: Path) -> None:
    copy.mkdir(parents=True, mode=0o700)
    for path, name in formats.files(found):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


async def _sweep(kube: "Kube", where: DataDir) -> None:
    """Remove copies whose versions are finished or gone: an import that was interrupted left its own to the build."""
    for copy in where.imports.glob("*/*"):
        try:
            version = await kube.get(kinds.MODEL_VERSION, copy.parent.name, copy.name)
        except errors.NotFound:
            version = None
        if version is None or is_finished(version):
            shutil.rmtree(copy, ignore_errors=True)
