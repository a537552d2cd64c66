"""Objects and tables as `get` prints them, once or at each change."""

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


class Served(NamedTuple):
    """A table as the server lays it out, and the resourceVersion that it is of."""

    resource_version: str
    headers: list[str]
    rows: list[list[object]]


def placed(kind: Kind, where: str | None) -> str | None:
    return where if kind.namespaced else None


async def served(
    kube: "Kube", kind: Kind, name: str | None, where: str | None, labels: str, *, wide: bool
) -> Served:
    """Return the table of a kind or of one object; `where` is the namespace, None means all."""
    path = kind.path(placed(kind, where), name)
    query = {} if name else {"labelSelector": labels}
    table = await kube.request("GET", path, query=query, accept=TABLE)
    version = str((table.get("metadata") or {}).get("resourceVersion", ""))
    return Served(version, *tables.served(table, wide=wide, namespaced=kind.namespaced and where is None))


def print_objects(found: list[Any], output: str, *, single: bool) -> None:
    if output == "name":
        for item in found:
            kind = kinds.of(item["apiVersion"], item["kind"])
            print(full_name(kind, item["metadata"]["name"]) if kind else item["metadata"]["name"])
        return
    for item in found:
        item["metadata"].pop("managedFields", None)
    whole = found[0] if single else {"apiVersion": "v1", "kind": "List", "items": found}
    if output == "json":
        print(orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode())
    else:
        print(yaml.safe_dump(whole, sort_keys=False), end="")


def print_rows(headers: list[str], rows: list[list[object]], where: str | None) -> None:
    """Print a table, or that there is nothing; `where` is the namespace that was looked in."""
    if rows:
        print(tables.text(headers, rows), flush=True)
    else:
        print(f"No resources found{f' in namespace {where}' if where else ''}.", file=sys.stderr)
