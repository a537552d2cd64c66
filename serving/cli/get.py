"""`slipway get`: tables as the server lays them out, and objects as JSON or YAML."""

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from serving import errors
from serving.cli import tables
from serving.cli.commands import Output
from serving.cli.session import with_kube
from serving.cli.target import Target, full_name, named
from serving.resources import kinds
from serving.resources.kinds import Kind

if TYPE_CHECKING:
    from serving.kube import Kube

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def get(
    what: list[str], meant: Target, where: str | None, output: Output, labels: str, *, watch: bool
) -> None:
    """Print objects; `where` is the namespace, None means all."""

    async def work(kube: "Kube") -> None:
        if not what:
            listing = await kube.list(kinds.INFERENCE, where, labels=labels)
            _print_rows(*tables.overview(listing.items, namespaced=where is None), where)
            return
        objects = named(what)
        if watch and len(objects) != 1:
            raise errors.UserError("-w watches one kind at a time")
        if output in ("json", "yaml", "name"):
            _print_objects(await _objects(kube, objects, where, labels), output, single=_single(objects))
        else:
            await _print_tables(kube, objects, where, labels, wide=output == "wide")
        if watch:
            await _follow(kube, objects[0], where, labels, output)

    with_kube(meant.kubeconfig, work)


def _single(objects: list[tuple[Kind, str | None]]) -> bool:
    return len(objects) == 1 and objects[0][1] is not None


def _place(kind: Kind, where: str | None) -> str | None:
    return where if kind.namespaced else None


async def _objects(
    kube: "Kube", objects: list[tuple[Kind, str | None]], where: str | None, labels: str
) -> list[Any]:
    found: list[Any] = []
    for kind, name in objects:
        if name is None:
            found += (await kube.list(kind, _place(kind, where), labels=labels)).items
        else:
            found.append(await kube.get(kind, _place(kind, where), name))
    return found


def _print_objects(found: list[Any], output: str, *, single: bool) -> None:
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


async def _print_tables(
    kube: "Kube", objects: list[tuple[Kind, str | None]], where: str | None, labels: str, *, wide: bool
) -> None:
    groups: dict[Kind, tuple[list[str], list[list[object]]]] = {}
    for kind, name in objects:
        headers, rows = await _rows(kube, kind, name, where, labels, wide=wide)
        groups.setdefault(kind, (headers, []))[1].extend(rows)
    shown = {kind: group for kind, group in groups.items() if group[1]} or dict(list(groups.items())[:1])
    for number, (kind, (headers, rows)) in enumerate(shown.items()):
        if number:
            print()
        if len(shown) > 1:
            column = headers.index("Name") if "Name" in headers else 0
            for row in rows:
                row[column] = full_name(kind, str(row[column]))
        _print_rows(headers, rows, where if kind.namespaced else None)


async def _rows(
    kube: "Kube", kind: Kind, name: str | None, where: str | None, labels: str, *, wide: bool
) -> tuple[list[str], list[list[object]]]:
    path = kind.path(_place(kind, where), name)
    query = {} if name else {"labelSelector": labels}
    table = await kube.request("GET", path, query=query, accept=TABLE)
    return tables.served(table, wide=wide, namespaced=kind.namespaced and where is None)


def _print_rows(headers: list[str], rows: list[list[object]], where: str | None) -> None:
    if rows:
        print(tables.text(headers, rows), flush=True)
    else:
        print(f"No resources found{f' in namespace {where}' if where else ''}.", file=sys.stderr)


async def _follow(
    kube: "Kube", what: tuple[Kind, str | None], where: str | None, labels: str, output: Output
) -> None:
    kind, name = what
    version = (await kube.list(kind, _place(kind, where), labels=labels)).resource_version
    while True:
        try:
            async for event in kube.watch(kind, _place(kind, where), version, labels=labels):
                version = event.object["metadata"]["resourceVersion"]
                if event.type == "BOOKMARK" or name not in (None, event.object["metadata"].get("name")):
                    continue
                await _print_change(kube, kind, event.object, output, gone=event.type == "DELETED")
        except errors.Gone:
            version = (await kube.list(kind, _place(kind, where), labels=labels)).resource_version
        except errors.Unavailable:
            await asyncio.sleep(1)


async def _print_change(kube: "Kube", kind: Kind, obj: Any, output: Output, *, gone: bool) -> None:
    meta = obj["metadata"]
    if output in ("json", "yaml", "name"):
        _print_objects([obj], output, single=True)
    elif gone:
        print(f"{full_name(kind, meta['name'])} deleted", flush=True)
    else:
        try:
            _, rows = await _rows(kube, kind, meta["name"], meta.get("namespace"), "", wide=output == "wide")
        except errors.NotFound:
            return
        for row in rows:
            print("  ".join(tables.UNKNOWN if c in (None, "") else str(c) for c in row), flush=True)
