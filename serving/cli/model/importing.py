"""`slipway model import`: makes a ModelVersion of a directory, with the metadata of the tool that wrote it.

A directory that needs a `slipway.json`, other file names or copies of links is copied below the data
directory; the user's directory is only read.
"""

import json
import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serving import clock, errors
from serving.cli.model import creation, formats
from serving.cli.model.creation import Framework, Timeout
from serving.cli.model.formats import ForeignModel
from serving.cli.model.pull import label
from serving.cli.model.store import data_dir
from serving.cli.options import with_target
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.data_dir import DataDir
from serving.images.documents import output_manifest
from serving.planning.models.version import is_finished
from serving.resources import kinds, names

if TYPE_CHECKING:
    from serving.kube import Kube

_REVISION_CHARACTERS = 12
"""Of a revision in the name of a version."""


@with_target
def import_(
    target: Target,
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Files of a model; an MLflow run or model; a Hugging Face style directory."
        ),
    ],
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="Make a version of this Model.")],
    version: Annotated[
        str,
        typer.Option("--version", metavar="NAME", help="[default: the Model and where the files come from]"),
    ] = "",
    framework: Framework = "",
    timeout: Timeout = 600.0,
) -> None:
    """Make a version of a directory.

    And wait until it is ready. The directory is only read.
    """
    where = data_dir(target)
    foreign = formats.recognise(directory)
    framework = framework or foreign.framework
    name = version or default_name(model, foreign, clock.now())

    async def work(kube: "Kube") -> None:
        await _sweep(kube, where)
        copy = where.imports / target.namespace / name
        path = _prepared(foreign, framework, copy)
        by = f"slipway model import {foreign.root} ({foreign.kind})"
        body = creation.manifest(target.namespace, name, model, {"path": str(path)}, framework, by)
        try:
            await creation.create(kube, body, timeout)
        finally:
            await _sweep(kube, where)

    with_kube(target.kubeconfig, work)


def default_name(model: str, foreign: ForeignModel, now: datetime) -> str:
    """Return a name of the Model and the run's or snapshot's id; plain files have the time instead."""
    return label(f"{model}-{foreign.revision[:_REVISION_CHARACTERS] or now.strftime('%Y%m%d-%H%M%S')}")


def described(foreign: ForeignModel, framework: str) -> dict[str, Any]:
    """Return the `slipway.json` of a foreign layout; empty where it would have no fields."""
    fields = {
        "framework": framework,
        "metrics": dict(foreign.metrics),
        "sourceRevision": foreign.revision,
        "inputs": [dict(tensor) for tensor in foreign.inputs],
    }
    return {key: value for key, value in fields.items() if value}


def _prepared(foreign: ForeignModel, framework: str, copy: Path) -> Path:
    """Return the directory to build from: the user's, or a copy of it.

    Raises:
        errors.UserError: it cannot be copied.
        errors.Permanent: `InvalidManifest`, the foreign metadata do not fit a slipway.json.
    """
    own = (foreign.root / names.MANIFEST_FILE).exists()
    about = {} if own or foreign.kind == "directory" else described(foreign, framework)
    if not about and not foreign.renamed and foreign.links_within is None:
        return foreign.root
    data = json.dumps(about, indent=2).encode()
    output_manifest.parse(data)
    print(f"{foreign.kind} {foreign.root}: copying", file=sys.stderr, flush=True)
    try:
        _copy(foreign, copy)
        if about:
            (copy / names.MANIFEST_FILE).write_bytes(data)
    except FileExistsError as error:
        raise errors.UserError(f"an import of that name is under way: {error}") from error
    except (OSError, errors.UserError):
        shutil.rmtree(copy, ignore_errors=True)
        raise
    return copy


def _copy(foreign: ForeignModel, copy: Path) -> None:
    copy.mkdir(parents=True, mode=0o700)
    for path, name in formats.files(foreign):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


async def _sweep(kube: "Kube", where: DataDir) -> None:
    """Remove copies of finished and deleted versions; an interrupted import leaves its copy to the build."""
    for copy in where.imports.glob("*/*"):
        try:
            version = await kube.get(kinds.MODEL_VERSION, copy.parent.name, copy.name)
        except errors.NotFound:
            version = None
        if version is None or is_finished(version):
            shutil.rmtree(copy, ignore_errors=True)
