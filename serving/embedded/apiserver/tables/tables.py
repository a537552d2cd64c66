"""meta.k8s.io/v1 Tables: what `kubectl get` prints."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from serving.embedded.apiserver.tables import columns, jsonpath
from serving.objects import Object
from serving.resources import ages, catalog, kinds
from serving.resources.kinds import Kind

API_VERSION = "meta.k8s.io/v1"


def table(
    kind: Kind, objs: Iterable[Object], *, now: datetime, include_object: str = "Metadata",
    resource_version: str = "", continue_: str = "",
) -> Object:  # fmt: skip
    """Return the Table of these objects.

    Args:
        kind: of all of them.
        objs: in the order of the rows.
        now: ages are told as of this moment.
        include_object: `None`, `Metadata` or `Object`: what each row carries beside its cells.
        resource_version: of the list.
        continue_: token of the next page; empty on the last.
    """
    meta = {"resourceVersion": resource_version, "continue": continue_}
    found = _columns(kind)
    return {
        "kind": "Table",
        "apiVersion": API_VERSION,
        "metadata": {key: value for key, value in meta.items() if value},
        "columnDefinitions": [_definition(column) for column in found],
        "rows": [
            {"cells": [column.cell(obj, now) for column in found], **_carried(obj, include_object)}
            for obj in objs
        ],
    }


def _columns(kind: Kind) -> tuple[columns.Column, ...]:
    if kind not in kinds.OWN:
        return columns.BUILTIN[kind]
    definition = next(found for found in catalog.DEFINITIONS if found.kind == kind)
    name = columns.Column("Name", lambda obj, _now: obj["metadata"]["name"])
    return (name, *(_own(column) for column in definition.columns))


def _own(column: catalog.Column) -> columns.Column:
    def cell(obj: Object, now: datetime) -> Any:
        found = jsonpath.find(column.path, obj)
        if not found:
            return ages.UNKNOWN if column.path == ".metadata.creationTimestamp" else None
        if column.type == "date":
            return ages.since(found[0], now)
        if column.type == "string":
            return ",".join(str(value) for value in found)
        return found[0]

    sort = "string" if column.type == "date" else column.type
    return columns.Column(column.name, cell, sort, column.priority)


def _definition(column: columns.Column) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" and column.priority == 0 else "",
        "description": column.name,
        "priority": column.priority,
    }


def _carried(obj: Object, include_object: str) -> Object:
    if include_object == "Object":
        return {"object": obj}
    if include_object == "Metadata":
        head = {"kind": "PartialObjectMetadata", "apiVersion": API_VERSION}
        return {"object": {**head, "metadata": obj["metadata"]}}
    return {}
