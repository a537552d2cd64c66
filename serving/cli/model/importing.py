"""`slipway model import`: makes a ModelVersion of a directory, with the metadata of the tool that wrote it.

A directory that needs a `slipway.json`, other file names or copies of links is copied below the data
directory; the user's directory is only read.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serving import clock, errors
from serving.cli.model import creation, formats, import_copies
from serving.cli.model.creation import Framework, Timeout
from serving.cli.model.formats import ForeignModel
from serving.cli.model.pull import version_name
from serving.cli.model.store import data_dir
from serving.cli.options import with_target
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.images.documents import output_manifest
from serving.resources import names

if TYPE_CHECKING:
    from serving.kube import Kube

_REVISION_CHARACTERS = 12
"""Length of the part of a revision that is in the name of a version."""


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
    creation.check_model(model)
    if version:
        creation.check_version(version)
    where = data_dir(target)
    foreign = formats.recognise(directory)
    framework = framework or foreign.framework
    name = version or default_name(model, foreign, clock.now())

    async def work(kube: "Kube") -> None:
        await import_copies.sweep(kube, where)
        try:
            with _prepared(foreign, framework, where.imports / target.namespace / name) as path:
                by = f"slipway model import {foreign.root} ({foreign.kind})"
                source = {"path": str(path)}
                body = creation.manifest(target.namespace, name, model, source, framework, by)
                await creation.create(kube, body, timeout)
        finally:
            await import_copies.sweep(kube, where)

    with_kube(target.kubeconfig, work)


def default_name(model: str, foreign: ForeignModel, now: datetime) -> str:
    """Return a version's name: the Model, and the id of the run or snapshot; without an id the time `now`."""
    return version_name(model, foreign.revision[:_REVISION_CHARACTERS] or now.strftime("%Y%m%d-%H%M%S"))


def manifest_fields(foreign: ForeignModel, framework: str) -> dict[str, Any]:
    """Return the fields of `slipway.json` that the foreign metadata give; empty where they give none."""
    fields = {
        "framework": framework,
        "metrics": dict(foreign.metrics),
        "sourceRevision": foreign.revision,
        "inputs": [dict(tensor) for tensor in foreign.inputs],
    }
    return {key: value for key, value in fields.items() if value}


@contextmanager
def _prepared(foreign: ForeignModel, framework: str, copy: Path) -> Iterator[Path]:
    """Yield the directory to build from: the user's, or a copy at `copy`, locked during the block.

    Raises:
        errors.UserError: the directory cannot be copied.
        errors.Permanent: `InvalidManifest`, the foreign metadata do not fit a slipway.json.
    """
    has_manifest = (foreign.root / names.MANIFEST_FILE).exists()
    # A plain directory has no metadata to add; --framework is in the version's spec.
    adds_manifest = not has_manifest and foreign.kind != "directory"
    fields = manifest_fields(foreign, framework) if adds_manifest else {}
    if not fields and not foreign.renamed and foreign.links_within is None:
        yield foreign.root
        return
    manifest = json.dumps(fields, indent=2).encode()
    output_manifest.parse(manifest)
    print(f"{foreign.kind} {foreign.root}: copying", file=sys.stderr, flush=True)
    try:
        lock = import_copies.create(copy)
    except FileExistsError as error:
        raise errors.UserError(f"an import of that name is under way: {error}") from error
    try:
        _copy(foreign, copy, manifest if fields else b"")
        yield copy
    finally:
        os.close(lock)


def _copy(foreign: ForeignModel, copy: Path, manifest: bytes) -> None:
    """Copy the files to `copy`, and write `manifest` unless it is empty; after an error, remove `copy`."""
    try:
        for path, name in formats.files(foreign):
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        if manifest:
            (copy / names.MANIFEST_FILE).write_bytes(manifest)
    except (OSError, errors.UserError):
        shutil.rmtree(copy, ignore_errors=True)
        raise
