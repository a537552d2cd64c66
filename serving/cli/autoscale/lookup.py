"""Finds an Autoscaler by its name or by INFERENCE/PREDICTOR."""

from typing import TYPE_CHECKING, Annotated

import typer

from serving import errors
from serving.objects import Object
from serving.planning.inference.revision import autoscaler_name
from serving.resources import kinds

if TYPE_CHECKING:
    from serving.kube import Kube

ScalerName = Annotated[str, typer.Argument(metavar="NAME", help="The Autoscaler, or INFERENCE/PREDICTOR.")]


def own_name(name: str) -> str:
    """Return the Autoscaler's name.

    Raises:
        errors.UserError: `name` is neither a name nor INFERENCE/PREDICTOR.
    """
    inference, slash, predictor = name.partition("/")
    if not slash:
        return name
    if not inference or not predictor or "/" in predictor:
        raise errors.UserError(f"{name!r} is neither the name of an Autoscaler nor INFERENCE/PREDICTOR")
    return autoscaler_name(inference, predictor)


async def read(kube: "Kube", namespace: str, name: str | None) -> list[Object]:
    """Return one Autoscaler, or with None all of the namespace.

    Raises:
        errors.NotFound: there is no such Autoscaler.
    """
    if name is None:
        return (await kube.list(kinds.AUTOSCALER, namespace)).items
    return [await kube.get(kinds.AUTOSCALER, namespace, own_name(name))]
