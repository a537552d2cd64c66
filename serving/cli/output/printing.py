"""Prints objects and the tables of the API server."""

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import yaml

from serving.cli.output import tables
from serving.cli.target import full_name
from serving.resources import kinds
from serving.resources.kinds import Kind

if TYPE_CHECKING:
    from serving.kube import Kube

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class ServerTable(NamedTuple):
    """A table that the API server made, and its resourceVersion."""

    resource_version: str
    headers: list[str]
    rows: list[list[object]]


def scope(kind: Kind, where: str | None) -> str | None:
    """Return the namespace to read a kind in; None for all, and for kinds without a namespace."""
    return where if kind.namespaced else None


async def server_table(
    kube: "Kube", kind: Kind, name: str | None, where: str | None, labels: str, *, wide: bool
) -> ServerTable:
    """Return the table of a kind or of one object in the namespace `where`; None means all namespaces."""
    path = kind.path(scope(kind, where), name)
    query = {} if name else {"labelSelector": labels}
    table = await kube.request("GET", path, query=query, accept=TABLE)
    version = str((table.get("metadata") or {}).get("resourceVersion", ""))
    return ServerTable(
        version, *tables.of_server(table, wide=wide, namespaced=kind.namespaced and where is None)
    )


def print_objects(objects: list[Any], output: str, *, single: bool) -> None:
    """Print objects as `name`, `json` or `yaml`; a single one not as a List."""
    if output == "name":
        for item in objects:
            kind = kinds.of(item["apiVersion"], item["kind"])
            print(full_name(kind, item["metadata"]["name"]) if kind else item["metadata"]["name"])
        return
    for item in objects:
        item["metadata"].pop("managedFields", None)
    document = objects[0] if single else {"apiVersion": "v1", "kind": "List", "items": objects}
    if output == "json":
        print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        print(yaml.safe_dump(document, sort_keys=False), end="")


def print_rows(headers: list[str], rows: list[list[object]], where: str | None) -> None:
    """Print a table, or a message where it has no rows; `where` is the namespace that was searched."""
    if rows:
        print(tables.text(headers, rows), flush=True)
    else:
        print(f"No resources found{f' in namespace {where}' if where else ''}.", file=sys.stderr)
