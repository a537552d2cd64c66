"""`slipway top`: usage of replicas, with their requests and limits."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer

from serving import errors
from serving.cli.completion import candidates
from serving.cli.completion.values import Completes
from serving.cli.options import AllNamespaces, with_target
from serving.cli.output import live, tables
from serving.cli.output.printing import RowPrinter, print_rows
from serving.cli.output.tables import TextTable
from serving.cli.session import with_kube
from serving.cli.target import NamedKind, Target, named
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.formats import quantity
from serving.resources.kubernetes import pod_phases, pod_resources

if TYPE_CHECKING:
    from serving.kube import Kube

METRICS = "/apis/metrics.k8s.io/v1beta1"
HAVE_USAGE = (kinds.INFERENCE, kinds.POD)
HEADERS = [
    "Name",
    "Inference",
    "Arm",
    "CPU",
    "CPU-Request",
    "CPU-Limit",
    "CPU%",
    "Memory",
    "Memory-Request",
    "Memory-Limit",
    "Memory%",
]
MIB = 1024 * 1024
POLL_SECONDS = 2.0
"""Between two readings with -w: our node measures at each one, metrics-server every 15 s."""


@with_target
def top(
    target: Target,
    resources: Annotated[
        list[str] | None,
        typer.Argument(help="inference [NAME...], pod [NAME...]; without: the replicas of every Inference."),
        Completes(candidates.used_kinds_and_names),
    ] = None,
    labels: Annotated[
        str, typer.Option("-l", "--selector", metavar="KEY=VALUE,...", help="Only Pods with these labels.")
    ] = "",
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Follow usage until Ctrl-C.")] = False,
    all_namespaces: AllNamespaces = False,
) -> None:
    """Show what replicas use, beside their requests and limits."""
    namespace = None if all_namespaces else target.namespace
    selected = named(resources or [kinds.INFERENCE.plural])
    if unknown := [kind.plural for kind, _ in selected if kind not in HAVE_USAGE]:
        raise errors.UserError(f"{', '.join(unknown)} have no usage; give an inference or a pod")

    async def work(kube: "Kube") -> None:
        async def read() -> TextTable:
            pods, usage = await _read(kube, namespace, labels, selected)
            return rows(pods, usage, namespaced=namespace is None)

        # An API that cannot be reached is an error of this first reading; `_follow` waits for the API.
        headers, table_rows = await read()
        if watch:
            await _follow(read)
        else:
            print_rows(headers, table_rows, namespace)

    with_kube(target.kubeconfig, work)


async def _read(
    kube: "Kube", namespace: str | None, labels: str, selected: Sequence[NamedKind]
) -> tuple[list[Object], list[Object]]:
    """Return the selected Pods, and the usage of selected and other Pods.

    Both are of the Pods with the labels in a namespace (None: in all).
    """
    path = METRICS + (f"/namespaces/{namespace}" if namespace else "") + "/pods"
    try:
        usage = await kube.request("GET", path, query={"labelSelector": labels})
    except errors.NotFound as error:
        message = "this API has no usage of Pods: its cluster has no metrics-server"
        raise errors.UserError(message) from error
    listing = await kube.list(kinds.POD, namespace, labels=labels)
    pods = [pod for pod in listing.items if is_selected(pod, selected)]
    return pods, usage.get("items") or []


async def _follow(read: Callable[[], Awaitable[TextTable]]) -> None:
    """Print usage until interrupted, also through restarts of the API.

    A terminal shows a table that is updated; other outputs get a row for each change.
    """

    async def readings() -> AsyncIterator[TextTable]:
        while True:
            with contextlib.suppress(errors.Unavailable):
                yield await read()
            await asyncio.sleep(POLL_SECONDS)

    if live.is_terminal():
        await live.show(
            tables.text(*reading) if reading.rows else "no Pod yet" async for reading in readings()
        )
        return
    printer = RowPrinter()
    before: list[list[object]] = []
    async for headers, table_rows in readings():
        if changed := [row for row in table_rows if row not in before]:
            printer.add([header.upper() for header in headers], changed)
        before = table_rows


def is_selected(pod: Object, selected: Sequence[NamedKind]) -> bool:
    """Whether a Pod is among the objects, or a replica of one, and has not ended."""
    return not pod_phases.has_ended(pod) and any(_selects(kind, name, pod) for kind, name in selected)


def _selects(kind: kinds.Kind, name: str | None, pod: Object) -> bool:
    if kind == kinds.POD:
        return name in (None, pod["metadata"]["name"])
    inference = (pod["metadata"].get("labels") or {}).get(names.INFERENCE_LABEL)
    return bool(inference) and name in (None, inference)


def rows(pods: Iterable[Object], usage: Iterable[Object], *, namespaced: bool) -> TextTable:
    """Return headers and one row per Pod, in order; a Pod without usage (yet) has a row too."""
    usage_by_pod = {
        (metrics["metadata"].get("namespace"), metrics["metadata"]["name"]): metrics for metrics in usage
    }
    table_rows: list[list[object]] = []
    for pod in sorted(pods, key=_order):
        meta = pod["metadata"]
        labels = meta.get("labels") or {}
        metrics = usage_by_pod.get((meta.get("namespace"), meta["name"]), {})
        container_usage = [container["usage"] for container in metrics.get("containers") or []]
        row: list[object] = [
            meta["name"],
            labels.get(names.INFERENCE_LABEL),
            labels.get(names.PREDICTOR_LABEL),
            *_cells(pod, container_usage, "cpu"),
            *_cells(pod, container_usage, "memory"),
        ]
        table_rows.append([meta.get("namespace"), *row] if namespaced else row)
    return TextTable(["Namespace", *HEADERS] if namespaced else HEADERS, table_rows)


def _order(pod: Object) -> tuple[str, ...]:
    labels = pod["metadata"].get("labels") or {}
    return (
        pod["metadata"].get("namespace", ""),
        labels.get(names.INFERENCE_LABEL, ""),
        labels.get(names.PREDICTOR_LABEL, ""),
        pod["metadata"]["name"],
    )


def _cells(pod: Object, container_usage: list[Mapping[str, str]], resource: str) -> list[str | None]:
    """Return usage, request, limit, and usage in percent of the limit (without one, of the request)."""
    amounts = [quantity.parse(usage.get(resource, "0")) for usage in container_usage]
    used = sum(amounts, Decimal(0)) if amounts else None
    request = pod_resources.total(pod["spec"], "requests", resource)
    limit = pod_resources.total(pod["spec"], "limits", resource)
    bound = limit if limit is not None else request
    share = None if used is None or not bound else f"{100 * used / bound:.0f}%"
    return [_shown(amount, resource) for amount in (used, request, limit)] + [share]


def _shown(amount: Decimal | None, resource: str) -> str | None:
    if amount is None:
        return None
    return f"{round(amount * 1000)}m" if resource == "cpu" else f"{round(amount / MIB)}Mi"
