"""`slipway convert`: manifests of Morphling, printed as ours; what has no equivalent is told on standard error."""

import sys
from typing import Any

import orjson
import yaml

from serving import errors
from serving.cli.objects import manifests
from tuner.convert.experiment import convert as converted


def convert(files: list[str], output: str, model_version: str | None) -> None:
    """Print all of them, or none.

    Raises:
        errors.UserError: one cannot be read or converted; the message names file and field.
    """
    found: list[Any] = []
    lines: list[str] = []
    for source, body in manifests.bodies(files):
        try:
            result = converted(body, model_version)
        except errors.UserError as error:
            raise errors.UserError(f"{source}: {error}") from error
        found.append(result.manifest)
        lines += [f"{source}: {note.path}: {note.advice}" for note in result.notes]
    for line in lines:
        print(line, file=sys.stderr)
    if output == "json":
        whole = found[0] if len(found) == 1 else {"apiVersion": "v1", "kind": "List", "items": found}
        print(orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode())
    else:
        print(yaml.safe_dump_all(found, sort_keys=False, allow_unicode=True), end="")
