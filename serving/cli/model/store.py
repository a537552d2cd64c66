"""The model store beside a kubeconfig, for commands that read images on the machine of `slipway up`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from serving import errors
from serving.cli.target import Target
from serving.data_dir import DataDir
from serving.images.store.model_store import ModelStore
from serving.resources import kinds
from serving.resources.kubernetes import conditions

if TYPE_CHECKING:
    from serving.kube import Kube

S = TypeVar("S", bound=ModelStore)

VersionName = Annotated[str, typer.Argument(metavar="VERSION", help="The ModelVersion.")]
ImageName = Annotated[str, typer.Argument(metavar="REFERENCE", help="HOST[:PORT]/REPOSITORY[:TAG][@DIGEST].")]


def data_dir(target: Target) -> DataDir:
    """Return the data directory of the `up` whose kubeconfig is used.

    Raises:
        errors.UserError: the API is a cluster's or another machine's.
    """
    where = DataDir(target.kubeconfig.absolute().parent)
    if not where.models.is_dir():
        raise errors.UserError(
            f"this needs the model store of the API, and there is none beside {target.kubeconfig}: "
            "run it on the machine"
            " of `slipway up`, with its --data-dir"
        )
    return where


def open_store(target: Target, store: Callable[[Path], S]) -> S:
    """Open the model store as an object of the class `store`.

    Raises:
        errors.UserError: as `data_dir`; or the store belongs to another user.
    """
    where = data_dir(target).models
    try:
        return store(where)
    except PermissionError as error:
        raise errors.UserError(f"the model store belongs to the user of `slipway up`: {error}") from error


async def ready(kube: "Kube", namespace: str, name: str) -> dict[str, Any]:
    """Return a ModelVersion that is ready.

    Raises:
        errors.UserError: it is not ready; the message has the reason.
    """
    version = await kube.get(kinds.MODEL_VERSION, namespace, name)
    status = version.get("status") or {}
    if status.get("phase") != "Ready":
        condition = conditions.find(status.get("conditions"), "Ready") or {}
        raise errors.UserError(
            f"ModelVersion {name} is {status.get('phase', 'Pending')}: "
            f"{condition.get('reason', '')} {condition.get('message', '')}".rstrip()
        )
    return version
