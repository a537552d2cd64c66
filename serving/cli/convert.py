"""`slipway convert`: converts ProfilingExperiments of Morphling, a tuner for Kubernetes, to those of Slipway.

Manifests are printed on standard output, and the fields without an equivalent on standard error.
"""

import sys
from typing import Annotated, Any, Literal

import orjson
import typer
import yaml

from serving import errors
from serving.cli.objects import manifests
from serving.resources.formats import manifest_yaml


def convert(
    file: Annotated[
        list[str],
        typer.Option(
            "-f",
            "--filename",
            metavar="FILE",
            help="Manifests of Morphling; a file, a directory, or - for standard input.",
        ),
    ],
    output: Annotated[
        Literal["yaml", "json"], typer.Option("-o", "--output", help="Output format.")
    ] = "yaml",
    model_version: Annotated[
        str | None,
        typer.Option(
            "--model-version",
            metavar="NAME",
            help="The ModelVersion that is tuned.  [default: named after the model]",
        ),
    ] = None,
) -> None:
    """Print Morphling's ProfilingExperiments as ours; say what has no equivalent."""
    from tuner.convert import experiment

    converted: list[Any] = []
    notes: list[str] = []
    for source, body in manifests.bodies(file):
        try:
            result = experiment.convert(body, model_version)
        except errors.UserError as error:
            raise errors.UserError(f"{source}: {error}") from error
        converted.append(result.manifest)
        notes += [f"{source}: {note.path}: {note.advice}" for note in result.notes]
    for note in notes:
        print(note, file=sys.stderr)
    if output == "json":
        list_ = {"apiVersion": "v1", "kind": "List", "items": converted}
        document = converted[0] if len(converted) == 1 else list_
        print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        print(
            yaml.dump_all(converted, Dumper=manifest_yaml.Dumper, sort_keys=False, allow_unicode=True), end=""
        )
