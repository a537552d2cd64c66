"""`slipway traffic`: the weights of an Inference's arms: those that are named change, nothing else does."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from serving import clock, errors
from serving.cli.objects.conflicts import TRAFFIC_MANAGER
from serving.cli.objects.patching import patched
from serving.cli.output import tables
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.resources import conditions, kinds

if TYPE_CHECKING:
    from serving.kube import Kube

POLL_SECONDS = 0.05


def get(name: str, meant: Target) -> None:
    """Print the weights that are asked for and the shares that are served."""

    async def work(kube: "Kube") -> None:
        _show(await kube.get(kinds.INFERENCE, meant.namespace, name))

    with_kube(meant.kubeconfig, work)


def set_(name: str, wanted: Mapping[str, int], meant: Target, *, timeout: float | None) -> None:
    """Set weights; `timeout` is how many seconds to wait until they are served, None does not wait."""

    async def work(kube: "Kube") -> None:
        obj = await shift(kube, meant.namespace, name, wanted)
        if timeout is not None:
            obj = await accepted(kube, obj, timeout)
        _show(obj)

    with_kube(meant.kubeconfig, work)


def parse(words: Sequence[str]) -> dict[str, int]:
    """Parse `arm=weight` words.

    Raises:
        errors.UserError: a word has another form, or an arm is named twice.
    """
    wanted: dict[str, int] = {}
    for word in words:
        arm, _, weight = word.partition("=")
        if not arm or not weight.isascii() or not weight.isdigit():
            raise errors.UserError(
                f"{word!r} is not ARM=WEIGHT with a whole weight of 0 or more, like stable=90"
            )
        if arm in wanted:
            raise errors.UserError(f"arm {arm} is given twice")
        wanted[arm] = int(weight)
    return wanted


def patch(obj: Mapping[str, Any], wanted: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the JSON patch; each position is tested to hold the arm that is meant.

    Raises:
        errors.UserError: the Inference has no such arm.
    """
    arms = [predictor["name"] for predictor in obj["spec"]["predictors"]]
    if unknown := [arm for arm in wanted if arm not in arms]:
        raise errors.UserError(
            f"Inference {obj['metadata']['name']} has no arm {', '.join(unknown)}; its arms are {', '.join(arms)}"
        )
    operations: list[dict[str, Any]] = []
    for arm, weight in wanted.items():
        where = f"/spec/predictors/{arms.index(arm)}"
        operations += [
            {"op": "test", "path": f"{where}/name", "value": arm},
            {"op": "add", "path": f"{where}/trafficWeight", "value": weight},
        ]
    return operations


async def shift(kube: "Kube", namespace: str, name: str, wanted: Mapping[str, int]) -> dict[str, Any]:
    """Set the weights; tried again where the arms were reordered in between."""
    path = kinds.INFERENCE.path(namespace, name)
    return await patched(kube, path, lambda obj: patch(obj, wanted), TRAFFIC_MANAGER)


async def accepted(kube: "Kube", obj: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Wait until every gateway has accepted this generation; returns the Inference as it is then.

    Raises:
        errors.UserError: not within `timeout` seconds; the message has the condition's words.
    """
    meta = obj["metadata"]
    deadline = clock.monotonic() + timeout
    while True:
        now = await kube.get(kinds.INFERENCE, meta["namespace"], meta["name"])
        found = conditions.find((now.get("status") or {}).get("conditions"), "RoutesReady") or {}
        if found.get("status") == "True" and int(found.get("observedGeneration", 0)) >= meta["generation"]:
            return now
        if clock.monotonic() > deadline:
            raise errors.UserError(
                f"the weights are stored, but not served after {timeout:g} s: "
                f"{found.get('reason', 'no controller has looked at them')} {found.get('message', '')}".rstrip()
            )
        await asyncio.sleep(POLL_SECONDS)


def _show(obj: Mapping[str, Any]) -> None:
    served = {p["name"]: p.get("trafficPercent") for p in (obj.get("status") or {}).get("predictors") or []}
    total = sum(p.get("trafficWeight", 1) for p in obj["spec"]["predictors"]) or 1
    rows = []
    for predictor in obj["spec"]["predictors"]:
        weight, percent = predictor.get("trafficWeight", 1), served.get(predictor["name"])
        rows.append([
            predictor["name"], predictor["modelVersion"], weight, f"{100 * weight / total:.4g}%",
            None if percent is None else f"{percent:.4g}%",
        ])  # fmt: skip
    print(tables.text(["Arm", "Version", "Weight", "Wanted", "Served"], rows))
