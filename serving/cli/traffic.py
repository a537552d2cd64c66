"""`slipway traffic`: shows and sets the weights of an Inference's arms."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serving import clock, errors
from serving.cli.completion import candidates
from serving.cli.completion.values import Completes
from serving.cli.objects.conflicts import TRAFFIC_MANAGER
from serving.cli.objects.patching import patched
from serving.cli.options import with_target
from serving.cli.output import tables
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.cli.traffic_weights import Amounts, parse, resolved
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.resources.traffic_split import DEFAULT_WEIGHT

if TYPE_CHECKING:
    from serving.kube import Kube

POLL_SECONDS = 0.05


InferenceName = Annotated[
    str, typer.Argument(help="The Inference."), Completes(candidates.names_of("inferences"))
]


@with_target
def get(target: Target, name: InferenceName) -> None:
    """Show the weights that are asked for and the shares that are served."""

    async def work(kube: "Kube") -> None:
        _show(await kube.get(kinds.INFERENCE, target.namespace, name))

    with_kube(target.kubeconfig, work)


@with_target
def set_(
    target: Target,
    name: InferenceName,
    weights: Annotated[
        list[str],
        typer.Argument(
            help="ARM=WEIGHT ..., relative to their sum; or ARM=SHARE% ..., the other arms divide the rest."
        ),
        Completes(candidates.arms_to_weigh),
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Until every gateway serves it.")] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Longest wait.")] = 30.0,
) -> None:
    """Set the weights of the arms that are named; the others keep theirs."""
    amounts = parse(weights)

    async def work(kube: "Kube") -> None:
        obj = await shift(kube, target.namespace, name, amounts)
        if wait:
            obj = await accepted(kube, obj, timeout)
        _show(obj)

    with_kube(target.kubeconfig, work)


def patch(obj: Mapping[str, Any], amounts: Amounts) -> list[dict[str, Any]]:
    """Return the JSON patch that sets the weights; it tests that each position still has the same arm.

    Raises:
        errors.UserError: the Inference has no such arm, or the shares are not 100 % in all.
    """
    arms = [predictor["name"] for predictor in obj["spec"]["predictors"]]
    if unknown := [arm for arm in amounts if arm not in arms]:
        raise errors.UserError(
            f"Inference {obj['metadata']['name']} has no arm {', '.join(unknown)}; "
            f"its arms are {', '.join(arms)}"
        )
    current = {
        predictor["name"]: predictor.get("trafficWeight", DEFAULT_WEIGHT)
        for predictor in obj["spec"]["predictors"]
    }
    operations: list[dict[str, Any]] = []
    for arm, weight in resolved(current, amounts).items():
        path = f"/spec/predictors/{arms.index(arm)}"
        operations += [
            {"op": "test", "path": f"{path}/name", "value": arm},
            {"op": "add", "path": f"{path}/trafficWeight", "value": weight},
        ]
    return operations


async def shift(kube: "Kube", namespace: str, name: str, amounts: Amounts) -> dict[str, Any]:
    """Set the weights; return the Inference."""
    path = kinds.INFERENCE.path(namespace, name)
    return await patched(kube, path, lambda obj: patch(obj, amounts), TRAFFIC_MANAGER)


async def accepted(kube: "Kube", obj: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Wait until every gateway has accepted the generation of `obj`; return the current Inference.

    Raises:
        errors.UserError: not within `timeout` seconds; the message has the reason of the condition.
    """
    meta = obj["metadata"]
    deadline = clock.monotonic() + timeout
    while True:
        current = await kube.get(kinds.INFERENCE, meta["namespace"], meta["name"])
        routes = conditions.find((current.get("status") or {}).get("conditions"), "RoutesReady") or {}
        if routes.get("status") == "True" and int(routes.get("observedGeneration", 0)) >= meta["generation"]:
            return current
        if clock.monotonic() > deadline:
            reason = routes.get("reason", "no controller has looked at them")
            raise errors.UserError(
                f"the weights are stored, but not served after {timeout:g} s: "
                f"{reason} {routes.get('message', '')}".rstrip()
            )
        await asyncio.sleep(POLL_SECONDS)


def _show(obj: Mapping[str, Any]) -> None:
    served = {p["name"]: p.get("trafficPercent") for p in (obj.get("status") or {}).get("predictors") or []}
    total = sum(p.get("trafficWeight", DEFAULT_WEIGHT) for p in obj["spec"]["predictors"]) or 1
    rows = []
    for predictor in obj["spec"]["predictors"]:
        weight, percent = predictor.get("trafficWeight", DEFAULT_WEIGHT), served.get(predictor["name"])
        rows.append(
            [
                predictor["name"],
                predictor["modelVersion"],
                weight,
                f"{100 * weight / total:.4g}%",
                None if percent is None else f"{percent:.4g}%",
            ]
        )
    print(tables.text(["Arm", "Version", "Weight", "Wanted", "Served"], rows))
