"""The output formats of objects: tables, documents, and the templates of kubectl."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from serving.cli.completion.values import Completes, choices
from serving.cli.output import templates
from serving.cli.output.templates import Column
from serving.resources.formats.jsonpath import parser
from serving.resources.formats.jsonpath.syntax import Template

_PLAIN = ("table", "wide", "json", "yaml", "name")
_FORMS = (*_PLAIN, "jsonpath=TEMPLATE", "custom-columns=HEADER:PATH,...")
_PARSERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "jsonpath": ("template", parser.template),
    "custom-columns": ("columns", templates.columns),
}
"""The field of `Output` of each format with an argument, and what parses the argument."""

OutputOption = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FORMAT",
        help="table, wide, json, yaml, name, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,...",
    ),
    Completes(choices(*_PLAIN, "jsonpath=", "custom-columns=")),
]


@dataclass(frozen=True)
class Output:
    """An output format."""

    name: str
    template: Template = ()
    """Template of `jsonpath`."""
    columns: tuple[Column, ...] = ()
    """Columns of `custom-columns`."""

    @property
    def is_table(self) -> bool:
        """Whether the command's own table is printed."""
        return self.name in ("table", "wide")


def parse(text: str) -> Output:
    """Return the format that -o names.

    Raises:
        typer.BadParameter: there is no such format, or its template is invalid.
    """
    name, equals, argument = text.partition("=")
    if name in _PLAIN and not equals:
        return Output(name)
    if name not in _PARSERS or not argument:
        raise typer.BadParameter(f"-o {text}: must be one of {', '.join(_FORMS)}")
    field, parsed = _PARSERS[name]
    try:
        return Output(name, **{field: parsed(argument)})
    except ValueError as error:
        raise typer.BadParameter(f"-o {text}: {error}") from error
