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
from serving.cli.session import with_kube
from serving.cli.target import Target, full_name, named
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
    where = None if all_namespaces else target.namespace
    form, selector = formats.parse(output), Selector(labels, fields)
    objects, is_overview = named(resources or [kinds.INFERENCE.plural]), not resources and form.is_table
    if watch and len(objects) != 1:
        raise errors.UserError("-w watches one kind, or one object, at a time")

    async def work(kube: "Kube") -> None:
        if watch:
            from serving.cli.objects import watching

            kind, name = objects[0]
            selection = watching.Selection(kind, where, name, selector)
            await watching.follow(kube, selection, form, by_arm=is_overview)
        elif is_overview:
            listing = await kube.list(kinds.INFERENCE, where, labels=labels, fields=fields)
            print_rows(*tables.overview(listing.items, namespaced=where is None), where)
        elif form.is_table:
            await _print_tables(kube, objects, where, selector, wide=form.name == "wide")
        else:
            print_objects(await _objects(kube, objects, where, selector), form, single=_single(objects))

    with_kube(target.kubeconfig, work)


def _single(objects: list[tuple[Kind, str | None]]) -> bool:
    return len(objects) == 1 and objects[0][1] is not None


async def _objects(
    kube: "Kube", objects: list[tuple[Kind, str | None]], where: str | None, selector: Selector
) -> list[Any]:
    items: list[Any] = []
    for kind, name in objects:
        if name is None:
            listing = await kube.list(
                kind, scope(kind, where), labels=selector.labels, fields=selector.fields
            )
            items += listing.items
        else:
            items.append(await kube.get(kind, scope(kind, where), name))
    return items


async def _print_tables(
    kube: "Kube", objects: list[tuple[Kind, str | None]], where: str | None, selector: Selector, *, wide: bool
) -> None:
    groups: dict[Kind, tuple[list[str], list[list[object]]]] = {}
    for kind, name in objects:
        table = await server_table(kube, kind, name, where, selector)
        headers, rows = tables.of_server(table, wide=wide, namespaced=kind.namespaced and where is None)
        groups.setdefault(kind, (headers, []))[1].extend(rows)
    shown = {kind: group for kind, group in groups.items() if group[1]} or dict(list(groups.items())[:1])
    for number, (kind, (headers, rows)) in enumerate(shown.items()):
        if number:
            print()
        if len(shown) > 1:
            column = headers.index("Name") if "Name" in headers else 0
            for row in rows:
                row[column] = full_name(kind, str(row[column]))
        print_rows(headers, rows, where if kind.namespaced else None)
