"""`slipway get -w`: lists objects, then prints every change since the list in the same form."""

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from serving import errors
from serving.cli.output import tables
from serving.cli.output.formats import OutputFormat
from serving.cli.output.printing import (
    TABLE,
    RowPrinter,
    Selector,
    column_rows,
    print_objects,
    scope,
    server_table,
)
from serving.objects import Object
from serving.resources.kinds import Kind

if TYPE_CHECKING:
    from serving.kube import Kube

RETRY_SECONDS = 1.0


class WatchedObjects(NamedTuple):
    """The objects that are watched."""

    kind: Kind
    namespace: str | None
    """None: all namespaces."""
    name: str | None = None
    """None: all that `selector` selects."""
    selector: Selector = Selector()

    @property
    def filter(self) -> Selector:
        """The selector for a list or a watch: of the object `name`, or without a name `selector`."""
        return Selector(fields=f"metadata.name={self.name}") if self.name else self.selector


async def follow(kube: "Kube", selection: WatchedObjects, output: OutputFormat, *, by_arm: bool) -> None:
    """Print the objects, then each change until interrupted, also the changes during a restart of the API.

    Args:
        kube: the API.
        selection: the objects.
        output: the output format.
        by_arm: whether a table has a row for each arm of Inferences, printed again when the row changes.

    Raises:
        errors.NotFound: the object of this name does not exist at the start.
        errors.Unavailable: the API does not answer at the start.
    """
    view: _View
    if not output.is_table:
        view = _Objects(kube, selection, output)
    elif by_arm:
        view = _Arms(kube, selection)
    else:
        view = _ServerRows(kube, selection, wide=output.name == "wide")
    kind, namespace = selection.kind, scope(selection.kind, selection.namespace)
    labels, fields = selection.filter
    if selection.name:
        await kube.get(kind, namespace, selection.name)  # raises NotFound
    version = await view.print_list()
    while True:
        try:
            version = version or await view.print_list()
            async for event in kube.watch(
                kind, namespace, version, labels=labels, fields=fields, accept=view.accept
            ):
                version = event.object["metadata"]["resourceVersion"]
                if event.type == "DELETED":
                    view.print_deleted(event.object)
                elif event.type != "BOOKMARK":
                    view.print_object(event.object)
        except errors.Gone:  # changes are lost: the present objects show their result
            version = ""  # list again in the `try`: the API may be unavailable then
        except errors.Unavailable:
            await asyncio.sleep(RETRY_SECONDS)


class _View(ABC):
    """Prints objects in one output format."""

    accept = "application/json"
    """The Accept header of the watch."""

    def __init__(self, kube: "Kube", selection: WatchedObjects) -> None:
        self._kube, self._selection = kube, selection
        self._namespaced = selection.kind.namespaced and selection.namespace is None
        self._rows = RowPrinter()

    async def print_list(self) -> str:
        """Print the objects; return the resourceVersion of the list, to watch from.

        The resourceVersion of an object may be too old to watch from: the API forgets changes.
        """
        kind, namespace = self._selection.kind, scope(self._selection.kind, self._selection.namespace)
        labels, fields = self._selection.filter
        listing = await self._kube.list(kind, namespace, labels=labels, fields=fields)
        for item in listing.items:
            self.print_object(item)
        return listing.resource_version

    @abstractmethod
    def print_object(self, sent: Object) -> None:
        """Print an object, or, for an `accept` of Tables, the Table that the API sends in its place."""

    def print_deleted(self, sent: Object) -> None:
        """Print the last state of a deleted object, by default like an existing object, as kubectl does."""
        self.print_object(sent)


class _ServerRows(_View):
    """The rows of the API server's Tables."""

    accept = TABLE

    def __init__(self, kube: "Kube", selection: WatchedObjects, *, wide: bool) -> None:
        super().__init__(kube, selection)
        self._wide = wide
        self._columns: list[Object] = []

    async def print_list(self) -> str:
        table = await server_table(
            self._kube, self._selection.kind, None, self._selection.namespace, self._selection.filter
        )
        self.print_object(table)
        return str(table["metadata"]["resourceVersion"])

    def print_object(self, sent: Object) -> None:
        # kube-apiserver sends the columns with the first change of a watch alone.
        self._columns = sent.get("columnDefinitions") or self._columns
        table = {**sent, "columnDefinitions": self._columns}
        headers, rows = tables.of_server(table, wide=self._wide, namespaced=self._namespaced)
        if rows:
            self._rows.add([header.upper() for header in headers], rows)


class _Objects(_View):
    """Objects in a format other than a table: JSON, YAML, names, jsonpath or custom columns."""

    def __init__(self, kube: "Kube", selection: WatchedObjects, output: OutputFormat) -> None:
        super().__init__(kube, selection)
        self._output = output

    def print_object(self, sent: Object) -> None:
        if self._output.name == "custom-columns":
            headers = [column.header for column in self._output.columns]
            self._rows.add(headers, column_rows([sent], self._output))
        else:
            print_objects([sent], self._output, single=True)


class _Arms(_View):
    """The overview: a row for each arm of an Inference."""

    def __init__(self, kube: "Kube", selection: WatchedObjects) -> None:
        super().__init__(kube, selection)
        self._printed: dict[str, list[list[object]]] = {}
        """The last rows of each Inference, by its uid."""

    def print_object(self, sent: Object) -> None:
        self._print(sent, *tables.overview([sent], namespaced=self._namespaced))

    def print_deleted(self, sent: Object) -> None:
        headers, rows = tables.overview([sent], namespaced=self._namespaced)
        for row in rows:
            row[headers.index("Reason")] = "Deleted"
        self._print(sent, headers, rows)

    def _print(self, inference: Object, headers: list[str], rows: list[list[object]]) -> None:
        uid = inference["metadata"]["uid"]
        if changed := [row for row in rows if row not in self._printed.get(uid, [])]:
            self._rows.add([header.upper() for header in headers], changed)
        self._printed[uid] = rows
