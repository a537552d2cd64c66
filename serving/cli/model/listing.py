"""`slipway model list` and `get`: versions with what people ask first: ready, from where, how large, used by whom."""

import sys
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal

from serving import clock
from serving.cli.options import Output
from serving.cli.output import tables
from serving.cli.output.printing import print_objects
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.objects import Object
from serving.planning.models import release
from serving.resources import ages, conditions, kinds

if TYPE_CHECKING:
    from serving.kube import Kube


_DIGEST_SHOWN = len("sha256:") + 12
_HEADERS = ("Name", "Model", "Phase", "Source", "Framework", "Size", "Digest", "Used-By", "Reason", "Age")
_WIDE = ("Image", "Message")


def list_(meant: Target, where: str | None, model: str, output: Output) -> None:
    """Print the versions of a namespace (None: of all), of one Model where it is named."""

    async def work(kube: "Kube") -> None:
        found = (await kube.list(kinds.MODEL_VERSION, where)).items
        found = [v for v in found if model in ("", v["spec"]["modelName"])]
        if output in ("json", "yaml", "name"):
            print_objects(found, output, single=False)
        elif found:
            await _print(kube, found, where, wide=output == "wide")
        else:
            of, at = f" of Model {model}" if model else "", f" in namespace {where}" if where else ""
            print(f"No versions{of} found{at}.", file=sys.stderr)

    with_kube(meant.kubeconfig, work)


def get(names: list[str], meant: Target, output: Output) -> None:
    """Print the versions that are named."""

    async def work(kube: "Kube") -> None:
        found = [await kube.get(kinds.MODEL_VERSION, meant.namespace, name) for name in names]
        if output in ("json", "yaml", "name"):
            print_objects(found, output, single=len(found) == 1)
        else:
            await _print(kube, found, meant.namespace, wide=output == "wide")

    with_kube(meant.kubeconfig, work)


async def _print(kube: "Kube", found: list[Any], where: str | None, *, wide: bool) -> None:
    inferences = (await kube.list(kinds.INFERENCE, where)).items
    print(tables.text(*rows(found, inferences, clock.now(), wide=wide, namespaced=where is None)))


def rows(
    versions: Iterable[Object], inferences: Iterable[Object], now: datetime, *, wide: bool, namespaced: bool
) -> tuple[list[str], list[list[object]]]:
    """Return the table's headers and rows, by Model and age, the newest last."""
    users: dict[tuple[str, str], list[str]] = {}
    for inference in inferences:
        user = inference["metadata"]
        for used in release.versions_of_inference(inference):
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
    phase = "Terminating" if "deletionTimestamp" in meta else status.get("phase", "Pending")
    size = status.get("size")
    return [
        meta["name"], version["spec"]["modelName"], phase, next(iter(version["spec"]["source"])),
        status.get("framework"), decimal(size) if size else None, status.get("digest", "")[:_DIGEST_SHOWN], used_by,
        ready.get("reason"), ages.since(meta["creationTimestamp"], now), status.get("image"), ready.get("message"),
    ]  # fmt: skip
