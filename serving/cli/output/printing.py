"""Prints objects and the tables of the API server."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import yaml

from serving import errors
from serving.cli.output import tables, templates
from serving.cli.output.formats import OutputFormat
from serving.cli.target import full_name
from serving.objects import Object
from serving.resources import kinds
from serving.resources.formats import manifest_yaml
from serving.resources.kinds import Kind

if TYPE_CHECKING:
    from serving.kube import Kube

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
"""The Accept header for tables of the API server."""


class Selector(NamedTuple):
    """Selects objects of a kind by labels and fields; an empty selector selects all."""

    labels: str = ""
    fields: str = ""


def scope(kind: Kind, namespace: str | None) -> str | None:
    """Return the namespace to read a kind in; None for all, and for kinds without a namespace."""
    return namespace if kind.namespaced else None


async def server_table(
    kube: "Kube", kind: Kind, name: str | None, namespace: str | None, selector: Selector
) -> Object:
    """Return the API server's Table of one object, or without a name of the selected objects.

    A namespace of None means all namespaces.
    """
    path = kind.path(scope(kind, namespace), name)
    query = {} if name else {"labelSelector": selector.labels, "fieldSelector": selector.fields}
    return await kube.request("GET", path, query=query, accept=TABLE)


def print_objects(objects: list[Any], output: OutputFormat, *, single: bool) -> None:
    """Print objects in a format other than a table.

    With `single`, JSON, YAML and jsonpath get the only object itself, not a List of it.

    Raises:
        errors.UserError: a path of the format does not fit an object.
    """
    if output.name == "name":
        for item in objects:
            kind = kinds.of(item["apiVersion"], item["kind"])
            print(full_name(kind, item["metadata"]["name"]) if kind else item["metadata"]["name"])
    elif output.name == "custom-columns":
        RowPrinter().add([column.header for column in output.columns], column_rows(objects, output))
    else:
        print(_document(objects, output, single=single), end="", flush=True)


def column_rows(objects: list[Any], output: OutputFormat) -> list[list[object]]:
    """Return the rows of `-o custom-columns`.

    Raises:
        errors.UserError: a path does not fit an object.
    """
    try:
        return [templates.cells(output.columns, item) for item in objects]
    except ValueError as error:
        raise errors.UserError(f"-o custom-columns does not fit: {error}") from error


def _document(objects: list[Any], output: OutputFormat, *, single: bool) -> str:
    document = objects[0] if single else {"apiVersion": "v1", "kind": "List", "items": objects}
    if output.name == "jsonpath":
        try:
            return templates.text(output.template, document)
        except ValueError as error:
            raise errors.UserError(f"-o jsonpath does not fit: {error}") from error
    for item in objects:  # `document` has the same items
        item["metadata"].pop("managedFields", None)
    if output.name == "json":
        return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
    text: str = yaml.dump(document, Dumper=manifest_yaml.Dumper, sort_keys=False)
    return text


def print_rows(headers: list[str], rows: list[list[object]], namespace: str | None) -> None:
    """Print a table, or, if it has no rows, a message with the namespace that was searched (None: all)."""
    if rows:
        print(tables.text(headers, rows), flush=True)
    else:
        print(f"No resources found{f' in namespace {namespace}' if namespace else ''}.", file=sys.stderr)


class RowPrinter:
    """Prints a table that gets further rows: the headers once, and columns that never become narrower."""

    def __init__(self) -> None:
        self._widths: list[int] = []

    def add(self, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print rows; the first call prints the headers before them, and does not change their case."""
        is_first = not self._widths
        lines = [*([list(headers)] if is_first else []), *map(tables.cells, rows)]
        new_widths = tables.widths(lines) if lines else self._widths
        self._widths = new_widths if is_first else list(map(max, self._widths, new_widths))
        for line in lines:
            print(tables.line(line, self._widths), flush=True)
