"""`slipway convert`: prints Morphling's manifests as ours; lists fields without an equivalent on stderr."""

import sys
from typing import Annotated, Any, Literal

import orjson
import typer
import yaml

from serving import errors
from serving.cli.objects import manifests


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
    from tuner.convert.experiment import convert as converted

    experiments: list[Any] = []
    lines: list[str] = []
    for source, body in manifests.bodies(file):
        try:
            result = converted(body, model_version)
        except errors.UserError as error:
            raise errors.UserError(f"{source}: {error}") from error
        experiments.append(result.manifest)
        lines += [f"{source}: {note.path}: {note.advice}" for note in result.notes]
    for line in lines:
        print(line, file=sys.stderr)
    if output == "json":
        list_ = {"apiVersion": "v1", "kind": "List", "items": experiments}
        document = experiments[0] if len(experiments) == 1 else list_
        print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        print(yaml.safe_dump_all(experiments, sort_keys=False, allow_unicode=True), end="")
