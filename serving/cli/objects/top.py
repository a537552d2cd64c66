"""`slipway top`: usage of replicas, with their requests and limits."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer

from serving import errors
from serving.cli.options import AllNamespaces, with_target
from serving.cli.output.printing import print_rows
from serving.cli.session import with_kube
from serving.cli.target import Target, named
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.formats import quantity

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


@with_target
def top(
    target: Target,
    what: Annotated[
        list[str] | None,
        typer.Argument(help="inference [NAME...], pod [NAME...]; without: the replicas of every Inference."),
    ] = None,
    labels: Annotated[
        str, typer.Option("-l", "--selector", metavar="KEY=VALUE,...", help="Only Pods with these labels.")
    ] = "",
    all_namespaces: AllNamespaces = False,
) -> None:
    """Show what replicas use, beside their requests and limits."""
    where = None if all_namespaces else target.namespace
    selected = named(what or [kinds.INFERENCE.plural])
    if unknown := [kind.plural for kind, _ in selected if kind not in HAVE_USAGE]:
        raise errors.UserError(f"{', '.join(unknown)} have no usage; give an inference or a pod")

    async def work(kube: "Kube") -> None:
        path = METRICS + (f"/namespaces/{where}" if where else "") + "/pods"
        try:
            usage = await kube.request("GET", path, query={"labelSelector": labels})
        except errors.NotFound as error:
            message = "this API has no usage of Pods: its cluster has no metrics-server"
            raise errors.UserError(message) from error
        pods = [
            pod
            for pod in (await kube.list(kinds.POD, where, labels=labels)).items
            if any(_selects(kind, name, pod) for kind, name in selected)
        ]
        print_rows(*rows(pods, usage.get("items") or [], namespaced=where is None), where)

    with_kube(target.kubeconfig, work)


def _selects(kind: kinds.Kind, name: str | None, pod: Object) -> bool:
    if kind == kinds.POD:
        return name in (None, pod["metadata"]["name"])
    inference = (pod["metadata"].get("labels") or {}).get(names.INFERENCE_LABEL)
    return bool(inference) and name in (None, inference)


def rows(
    pods: Iterable[Object], usage: Iterable[Object], *, namespaced: bool
) -> tuple[list[str], list[list[object]]]:
    """Return headers and one row per Pod, in order; a Pod without usage (yet) has a row too."""
    usage_by_pod = {(u["metadata"].get("namespace"), u["metadata"]["name"]): u for u in usage}
    rows: list[list[object]] = []
    for pod in sorted(pods, key=_order):
        meta = pod["metadata"]
        labels = meta.get("labels") or {}
        metrics = usage_by_pod.get((meta.get("namespace"), meta["name"]), {})
        used = [container["usage"] for container in metrics.get("containers") or []]
        row: list[object] = [
            meta["name"],
            labels.get(names.INFERENCE_LABEL),
            labels.get(names.PREDICTOR_LABEL),
            *_cells(pod, used, "cpu"),
            *_cells(pod, used, "memory"),
        ]
        rows.append([meta.get("namespace"), *row] if namespaced else row)
    return (["Namespace", *HEADERS] if namespaced else HEADERS), rows


def _order(pod: Object) -> tuple[str, ...]:
    labels = pod["metadata"].get("labels") or {}
    return (
        pod["metadata"].get("namespace", ""),
        labels.get(names.INFERENCE_LABEL, ""),
        labels.get(names.PREDICTOR_LABEL, ""),
        pod["metadata"]["name"],
    )


def _cells(pod: Object, used: list[Mapping[str, str]], resource: str) -> list[str | None]:
    """Return usage, request, limit, and usage in percent of the limit (without one, of the request)."""
    now = sum((quantity.parse(usage.get(resource, "0")) for usage in used), Decimal(0)) if used else None
    request, limit = _total(pod, "requests", resource), _total(pod, "limits", resource)
    bound = limit if limit is not None else request
    share = None if now is None or not bound else f"{100 * now / bound:.0f}%"
    return [_shown(amount, resource) for amount in (now, request, limit)] + [share]


def _total(pod: Object, kind: str, resource: str) -> Decimal | None:
    """Return the sum over the containers; None where a container has no such bound."""
    total = Decimal(0)
    for container in pod["spec"]["containers"]:
        amount = ((container.get("resources") or {}).get(kind) or {}).get(resource)
        if amount is None:
            return None
        total += quantity.parse(amount)
    return total


def _shown(amount: Decimal | None, resource: str) -> str | None:
    if amount is None:
        return None
    return f"{round(amount * 1000)}m" if resource == "cpu" else f"{round(amount / MIB)}Mi"
