"""`slipway get -w`: what there is, then every change, without a gap between the two."""

import asyncio
from typing import TYPE_CHECKING, Any

from serving import errors
from serving.cli.options import Output
from serving.cli.output import tables
from serving.cli.output.printing import placed, print_objects, served
from serving.cli.target import full_name
from serving.resources.kinds import Kind

if TYPE_CHECKING:
    from serving.kube import Kube

RETRY_SECONDS = 1.0


async def follow(
    kube: "Kube", kind: Kind, name: str | None, where: str | None, labels: str, output: Output
) -> None:
    """Print until interrupted; a change that falls into an API's restart is caught up with.

    Raises:
        errors.NotFound: `name` is not there at the start.
    """
    printer = _Printer(kube, kind, where, labels, output)
    version = await printer.everything(name)
    fields = f"metadata.name={name}" if name else ""
    while True:
        try:
            changes = kube.watch(kind, placed(kind, where), version, labels=labels, fields=fields)
            async for event in changes:
                version = event.object["metadata"]["resourceVersion"]
                if event.type != "BOOKMARK":
                    await printer.one(event.object, gone=event.type == "DELETED")
        except errors.Gone:
            version = await printer.everything(None)
        except errors.Unavailable:
            await asyncio.sleep(RETRY_SECONDS)


class _Printer:
    """Lays changes out below the table that was printed first."""

    def __init__(self, kube: "Kube", kind: Kind, where: str | None, labels: str, output: Output) -> None:
        self._kube, self._kind, self._where, self._labels, self._output = kube, kind, where, labels, output
        self._across: list[int] = []

    async def everything(self, name: str | None) -> str:
        """Print all there is; returns the resourceVersion to watch from."""
        if self._output in ("table", "wide"):
            version, headers, rows = await self._table(name)
            if rows:
                cells = [[header.upper() for header in headers], *map(tables.shown, rows)]
                self._across = tables.widths(cells)
                print(tables.text(headers, rows), flush=True)
            return version
        if name:
            obj = await self._kube.get(self._kind, placed(self._kind, self._where), name)
            print_objects([obj], self._output, single=True)
            return str(obj["metadata"]["resourceVersion"])
        listing = await self._kube.list(self._kind, placed(self._kind, self._where), labels=self._labels)
        for item in listing.items:
            print_objects([item], self._output, single=True)
        return listing.resource_version

    async def one(self, obj: Any, *, gone: bool) -> None:
        """Print one change."""
        meta = obj["metadata"]
        if self._output not in ("table", "wide"):
            print_objects([obj], self._output, single=True)
        elif gone:
            print(f"{full_name(self._kind, meta['name'])} deleted", flush=True)
        else:
            try:
                _, headers, rows = await self._table(meta["name"], meta.get("namespace"))
            except errors.NotFound:
                return
            if not self._across:
                self._across = tables.widths(
                    [[header.upper() for header in headers], *map(tables.shown, rows)]
                )
                print(tables.line([header.upper() for header in headers], self._across))
            for row in map(tables.shown, rows):
                self._across = list(map(max, self._across, map(len, row)))
                print(tables.line(row, self._across), flush=True)

    async def _table(
        self, name: str | None, namespace: str | None = None
    ) -> tuple[str, list[str], list[list[object]]]:
        found = await served(
            self._kube, self._kind, name, namespace or self._where, self._labels, wide=self._output == "wide"
        )
        if namespace and self._where is None:
            return (
                found.resource_version,
                ["Namespace", *found.headers],
                [[namespace, *row] for row in found.rows],
            )
        return found
