"""Tables of meta.k8s.io/v1, which `kubectl get` prints."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.embedded.apiserver.tables import columns
from serving.objects import Object
from serving.resources.definitions import PrinterColumn
from serving.resources.formats import ages
from serving.resources.formats.jsonpath import evaluation, parser
from serving.resources.kinds import Kind

API_VERSION = "meta.k8s.io/v1"


def table(
    stored_kinds: StoredKinds,
    kind: Kind,
    objs: Iterable[Object],
    *,
    now: datetime,
    include_object: str = "Metadata",
    resource_version: str = "",
    continue_: str = "",
) -> Object:
    """Return the Table of these objects.

    Args:
        stored_kinds: has the columns of custom kinds.
        kind: kind of the objects.
        objs: the objects, in the order of the rows.
        now: time for ages.
        include_object: `None`, `Metadata` or `Object`, the part of the object in each row.
        resource_version: resourceVersion of the list.
        continue_: token of the next page; empty on the last page.
    """
    meta = {"resourceVersion": resource_version, "continue": continue_}
    table_columns = _columns(stored_kinds, kind)
    return {
        "kind": "Table",
        "apiVersion": API_VERSION,
        "metadata": {key: value for key, value in meta.items() if value},
        "columnDefinitions": [_definition(column) for column in table_columns],
        "rows": [
            {"cells": [column.cell(obj, now) for column in table_columns], **_row_object(obj, include_object)}
            for obj in objs
        ],
    }


def _columns(stored_kinds: StoredKinds, kind: Kind) -> tuple[columns.TableColumn, ...]:
    definition = stored_kinds.definitions.get(kind)
    if definition is None:
        return columns.BUILTIN.get(kind, columns.PLAIN)
    name = columns.TableColumn("Name", lambda obj, _now: obj["metadata"]["name"])
    return (name, *(_custom_column(column) for column in definition.columns))


def _custom_column(column: PrinterColumn) -> columns.TableColumn:
    def cell(obj: Object, now: datetime) -> Any:
        values = _values(column.path, obj)
        if not values:
            return ages.UNKNOWN if column.path == ".metadata.creationTimestamp" else None
        if column.type == "date":
            return ages.since(values[0], now)
        if column.type == "string":
            return ",".join(str(value) for value in values)
        return values[0]

    type_ = "string" if column.type == "date" else column.type
    return columns.TableColumn(column.name, cell, type_, column.priority)


def _values(path: str, obj: Object) -> list[Any]:
    """Return the values of a column; none, as on a cluster, where the path does not fit the object."""
    try:
        return evaluation.find(parser.path(path), obj)
    except ValueError:
        return []


def _definition(column: columns.TableColumn) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" and column.priority == 0 else "",
        "description": column.name,
        "priority": column.priority,
    }


def _row_object(obj: Object, include_object: str) -> Object:
    if include_object == "Object":
        return {"object": obj}
    if include_object == "Metadata":
        head = {"kind": "PartialObjectMetadata", "apiVersion": API_VERSION}
        return {"object": {**head, "metadata": obj["metadata"]}}
    return {}
