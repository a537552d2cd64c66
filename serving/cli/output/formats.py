"""The output formats of objects: tables, documents, and the templates of kubectl."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import typer

from serving.cli.completion.values import Completes, choices
from serving.cli.output import templates
from serving.cli.output.templates import CustomColumn
from serving.resources.formats.jsonpath import parser
from serving.resources.formats.jsonpath.syntax import Template

_PLAIN = ("table", "wide", "json", "yaml", "name")
_FORMS = (*_PLAIN, "jsonpath=TEMPLATE", "custom-columns=HEADER:PATH,...")


class _Argument(NamedTuple):
    """The argument of a format: `-o FORMAT=ARGUMENT`."""

    field: str
    """The field of `OutputFormat` that keeps the parsed argument."""
    parse: Callable[[str], Any]


_ARGUMENTS: Mapping[str, _Argument] = {
    "jsonpath": _Argument("template", parser.template),
    "custom-columns": _Argument("columns", templates.columns),
}

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
class OutputFormat:
    """An output format."""

    name: str
    template: Template = ()
    """Template of `jsonpath`."""
    columns: tuple[CustomColumn, ...] = ()
    """Columns of `custom-columns`."""

    @property
    def is_table(self) -> bool:
        """Whether the format is a table, with columns that the command or the API server chooses."""
        return self.name in ("table", "wide")


def parse(text: str) -> OutputFormat:
    """Return the format that -o names.

    Raises:
        typer.BadParameter: there is no such format, or its template is invalid.
    """
    name, equals, argument_text = text.partition("=")
    if name in _PLAIN and not equals:
        return OutputFormat(name)
    if name not in _ARGUMENTS or not argument_text:
        raise typer.BadParameter(f"-o {text}: must be one of {', '.join(_FORMS)}")
    argument = _ARGUMENTS[name]
    try:
        return OutputFormat(name, **{argument.field: argument.parse(argument_text)})
    except ValueError as error:
        raise typer.BadParameter(f"-o {text}: {error}") from error
