"""`slipway get`: the server's tables, or objects as JSON or YAML."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from serving import errors
from serving.cli.completion import candidates
from serving.cli.completion.values import Completes
from serving.cli.options import AllNamespaces, with_target
from serving.cli.output import formats, tables
from serving.cli.output.formats import OutputOption
from serving.cli.output.printing import Selector, print_objects, print_rows, scope, server_table
from serving.cli.output.tables import TextTable
from serving.cli.session import with_kube
from serving.cli.target import NamedKind, Target, full_name, named
from serving.resources import kinds
from serving.resources.kinds import Kind

if TYPE_CHECKING:
    from serving.kube import Kube


@with_target
def get(
    target: Target,
    resources: Annotated[
        list[str] | None,
        typer.Argument(
            help="KIND [NAME...], KIND/NAME..., KIND,KIND; without: every arm of every Inference."
        ),
        Completes(candidates.kinds_and_names),
    ] = None,
    output: OutputOption = "table",
    labels: Annotated[
        str,
        typer.Option("-l", "--selector", metavar="KEY=VALUE,...", help="Only objects with these labels."),
    ] = "",
    fields: Annotated[
        str,
        typer.Option("--field-selector", metavar="FIELD=VALUE,...", help="Only objects with these fields."),
    ] = "",
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Go on printing changes.")] = False,
    all_namespaces: AllNamespaces = False,
) -> None:
    """Show objects."""
    namespace = None if all_namespaces else target.namespace
    output_format, selector = formats.parse(output), Selector(labels, fields)
    objects = named(resources or [kinds.INFERENCE.plural])
    is_overview = not resources and output_format.is_table
    _check_names(objects, selector, all_namespaces=all_namespaces)
    if watch and len(objects) != 1:
        raise errors.UserError("-w watches one kind, or one object, at a time")

    async def work(kube: "Kube") -> None:
        if watch:
            from serving.cli.objects import watching

            kind, name = objects[0]
            selection = watching.WatchedObjects(kind, namespace, name, selector)
            await watching.follow(kube, selection, output_format, by_arm=is_overview)
        elif is_overview:
            listing = await kube.list(kinds.INFERENCE, namespace, labels=labels, fields=fields)
            print_rows(*tables.overview(listing.items, namespaced=namespace is None), namespace)
        elif output_format.is_table:
            await _print_tables(kube, objects, namespace, selector, wide=output_format.name == "wide")
        else:
            is_single = len(objects) == 1 and objects[0].name is not None
            items = await _items(kube, objects, namespace, selector)
            print_objects(items, output_format, single=is_single)

    with_kube(target.kubeconfig, work)


def _check_names(objects: list[NamedKind], selector: Selector, *, all_namespaces: bool) -> None:
    """Refuse options that select among many objects beside a name, which they would not apply to."""
    for kind, name in objects:
        if name is not None and (selector.labels or selector.fields):
            raise errors.UserError("give either names or -l/--field-selector, not both")
        if name is not None and kind.namespaced and all_namespaces:
            raise errors.UserError(f"{full_name(kind, name)}: give its namespace with -n, not -A")


async def _items(
    kube: "Kube", objects: list[NamedKind], namespace: str | None, selector: Selector
) -> list[Any]:
    items: list[Any] = []
    for kind, name in objects:
        in_namespace = scope(kind, namespace)
        if name is None:
            listing = await kube.list(kind, in_namespace, labels=selector.labels, fields=selector.fields)
            items += listing.items
        else:
            items.append(await kube.get(kind, in_namespace, name))
    return items


async def _print_tables(
    kube: "Kube", objects: list[NamedKind], namespace: str | None, selector: Selector, *, wide: bool
) -> None:
    """Print one table per kind that has rows, with full names if there are several tables."""
    by_kind: dict[Kind, TextTable] = {}
    for kind, name in objects:
        response = await server_table(kube, kind, name, namespace, selector)
        table = tables.of_server(response, wide=wide, namespaced=kind.namespaced and namespace is None)
        if kind in by_kind:
            by_kind[kind].rows.extend(table.rows)
        else:
            by_kind[kind] = table
    shown = {kind: table for kind, table in by_kind.items() if table.rows}
    if not shown:  # the first empty table prints the message that there are no objects
        shown = dict(list(by_kind.items())[:1])
    for number, (kind, (headers, rows)) in enumerate(shown.items()):
        if number:
            print()
        if len(shown) > 1:
            column = headers.index("Name") if "Name" in headers else 0
            for row in rows:
                row[column] = full_name(kind, str(row[column]))
        print_rows(headers, rows, scope(kind, namespace))
