"""`slipway get -w`: lists objects, then prints every change since the list."""

import asyncio
from typing import TYPE_CHECKING, Any

from serving import errors
from serving.cli.options import Output
from serving.cli.output import tables
from serving.cli.output.printing import print_objects, scope, server_table
from serving.cli.target import full_name
from serving.resources.kinds import Kind

if TYPE_CHECKING:
    from serving.kube import Kube

RETRY_SECONDS = 1.0


async def follow(
    kube: "Kube", kind: Kind, name: str | None, where: str | None, labels: str, output: Output
) -> None:
    """Print changes until interrupted, also those during a restart of the API.

    Raises:
        errors.NotFound: `name` does not exist at the start.
    """
    printer = _Printer(kube, kind, where, labels, output)
    version = await printer.print_list(name)
    fields = f"metadata.name={name}" if name else ""
    while True:
        try:
            changes = kube.watch(kind, scope(kind, where), version, labels=labels, fields=fields)
            async for event in changes:
                version = event.object["metadata"]["resourceVersion"]
                if event.type != "BOOKMARK":
                    await printer.print_change(event.object, deleted=event.type == "DELETED")
        except errors.Gone:
            version = await printer.print_list(None)
        except errors.Unavailable:
            await asyncio.sleep(RETRY_SECONDS)


class _Printer:
    """Prints changes as further rows of the table that was printed first."""

    def __init__(self, kube: "Kube", kind: Kind, where: str | None, labels: str, output: Output) -> None:
        self._kube, self._kind, self._where, self._labels, self._output = kube, kind, where, labels, output
        self._widths: list[int] = []

    async def print_list(self, name: str | None) -> str:
        """Print all objects; return the resourceVersion to watch from."""
        if self._output in ("table", "wide"):
            version, headers, rows = await self._table(name)
            if rows:
                cells = [[header.upper() for header in headers], *map(tables.cells, rows)]
                self._widths = tables.widths(cells)
                print(tables.text(headers, rows), flush=True)
            return version
        if name:
            obj = await self._kube.get(self._kind, scope(self._kind, self._where), name)
            print_objects([obj], self._output, single=True)
            return str(obj["metadata"]["resourceVersion"])
        listing = await self._kube.list(self._kind, scope(self._kind, self._where), labels=self._labels)
        for item in listing.items:
            print_objects([item], self._output, single=True)
        return listing.resource_version

    async def print_change(self, obj: Any, *, deleted: bool) -> None:
        """Print one change."""
        meta = obj["metadata"]
        if self._output not in ("table", "wide"):
            print_objects([obj], self._output, single=True)
        elif deleted:
            print(f"{full_name(self._kind, meta['name'])} deleted", flush=True)
        else:
            try:
                _, headers, rows = await self._table(meta["name"], meta.get("namespace"))
            except errors.NotFound:
                return
            if not self._widths:
                self._widths = tables.widths(
                    [[header.upper() for header in headers], *map(tables.cells, rows)]
                )
                print(tables.line([header.upper() for header in headers], self._widths))
            for row in map(tables.cells, rows):
                self._widths = list(map(max, self._widths, map(len, row)))
                print(tables.line(row, self._widths), flush=True)

    async def _table(
        self, name: str | None, namespace: str | None = None
    ) -> tuple[str, list[str], list[list[object]]]:
        table = await server_table(
            self._kube, self._kind, name, namespace or self._where, self._labels, wide=self._output == "wide"
        )
        if namespace and self._where is None:
            return (
                table.resource_version,
                ["Namespace", *table.headers],
                [[namespace, *row] for row in table.rows],
            )
        return table
