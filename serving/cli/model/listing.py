"""`slipway model list` and `get`: a table of versions with phase, source, size and users."""

import sys
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal

from serving import clock
from serving.cli.completion import candidates
from serving.cli.completion.values import Completes
from serving.cli.options import AllNamespaces, with_target
from serving.cli.output import formats, tables
from serving.cli.output.formats import OutputOption
from serving.cli.output.printing import print_objects
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.objects import Object, is_deleting
from serving.planning.models import retention
from serving.resources import kinds
from serving.resources.formats import ages
from serving.resources.kubernetes import conditions

if TYPE_CHECKING:
    from serving.kube import Kube


_DIGEST_CHARACTERS = len("sha256:") + 12
_HEADERS = ("Name", "Model", "Phase", "Source", "Framework", "Size", "Digest", "Used-By", "Reason", "Age")
_WIDE = ("Image", "Message")


@with_target
def list_(
    target: Target,
    model: Annotated[
        str,
        typer.Option("--model", metavar="NAME", help="Of this Model."),
        Completes(candidates.names_of("models")),
    ] = "",
    output: OutputOption = "table",
    all_namespaces: AllNamespaces = False,
) -> None:
    """Show the versions of models, and who uses them."""
    where = None if all_namespaces else target.namespace
    form = formats.parse(output)

    async def work(kube: "Kube") -> None:
        listed = (await kube.list(kinds.MODEL_VERSION, where)).items
        versions = [v for v in listed if model in ("", v["spec"]["modelName"])]
        if not form.is_table:
            print_objects(versions, form, single=False)
        elif versions:
            await _print(kube, versions, where, wide=form.name == "wide")
        else:
            of_model = f" of Model {model}" if model else ""
            in_namespace = f" in namespace {where}" if where else ""
            print(f"No versions{of_model} found{in_namespace}.", file=sys.stderr)

    with_kube(target.kubeconfig, work)


@with_target
def get(
    target: Target,
    names: Annotated[list[str], typer.Argument(metavar="VERSION...", help="ModelVersions.")],
    output: OutputOption = "table",
) -> None:
    """Show some versions."""
    form = formats.parse(output)

    async def work(kube: "Kube") -> None:
        versions = [await kube.get(kinds.MODEL_VERSION, target.namespace, name) for name in names]
        if not form.is_table:
            print_objects(versions, form, single=len(versions) == 1)
        else:
            await _print(kube, versions, target.namespace, wide=form.name == "wide")

    with_kube(target.kubeconfig, work)


async def _print(kube: "Kube", versions: list[Any], where: str | None, *, wide: bool) -> None:
    inferences = (await kube.list(kinds.INFERENCE, where)).items
    print(tables.text(*rows(versions, inferences, clock.now(), wide=wide, namespaced=where is None)))


def rows(
    versions: Iterable[Object], inferences: Iterable[Object], now: datetime, *, wide: bool, namespaced: bool
) -> tuple[list[str], list[list[object]]]:
    """Return headers and rows, sorted by namespace, Model and age, the newest last."""
    users: dict[tuple[str, str], list[str]] = {}
    for inference in inferences:
        user = inference["metadata"]
        for used in retention.versions_of_inference(inference):
            users.setdefault((user["namespace"], used), []).append(user["name"])
    result: list[list[object]] = []
    for version in sorted(versions, key=_order):
        meta = version["metadata"]
        used_by = ", ".join(sorted(users.get((meta["namespace"], meta["name"]), [])))
        row = _row(version, used_by, now)
        result.append(
            [*([meta["namespace"]] if namespaced else []), *(row if wide else row[: len(_HEADERS)])]
        )
    return [*(["Namespace"] if namespaced else []), *_HEADERS, *(_WIDE if wide else ())], result


def _order(version: Object) -> tuple[str, ...]:
    meta = version["metadata"]
    return meta["namespace"], version["spec"]["modelName"], meta["creationTimestamp"], meta["name"]


def _row(version: Object, used_by: str, now: datetime) -> list[object]:
    status, meta = version.get("status") or {}, version["metadata"]
    ready = conditions.find(status.get("conditions"), "Ready") or {}
    phase = "Terminating" if is_deleting(version) else status.get("phase", "Pending")
    size = status.get("size")
    return [
        meta["name"],
        version["spec"]["modelName"],
        phase,
        next(iter(version["spec"]["source"])),
        status.get("framework"),
        decimal(size) if size else None,
        status.get("digest", "")[:_DIGEST_CHARACTERS],
        used_by,
        ready.get("reason"),
        ages.since(meta["creationTimestamp"], now),
        status.get("image"),
        ready.get("message"),
    ]
