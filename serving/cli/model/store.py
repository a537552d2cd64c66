"""Where the model store of the API that is meant lies, if it is this machine's."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from serving import errors
from serving.cli.target import Target
from serving.data_dir import DataDir
from serving.images.store.model_store import ModelStore
from serving.resources import conditions, kinds

if TYPE_CHECKING:
    from serving.kube import Kube

S = TypeVar("S", bound=ModelStore)


def data_dir(meant: Target) -> DataDir:
    """Return the data directory of the `up` whose kubeconfig is used.

    Raises:
        errors.UserError: that API is not one machine's, or not this machine's.
    """
    found = DataDir(meant.kubeconfig.absolute().parent)
    if not found.models.is_dir():
        raise errors.UserError(
            f"this needs the model store of the API, and there is none beside {meant.kubeconfig}: run it on the machine"
            " of `slipway up`, with its --data-dir"
        )
    return found


def opened(meant: Target, store: Callable[[Path], S]) -> S:
    """Open the store as one of its classes does.

    Raises:
        errors.UserError: as `data_dir`; or it belongs to another user.
    """
    where = data_dir(meant).models
    try:
        return store(where)
    except PermissionError as error:
        raise errors.UserError(f"the model store belongs to the user of `slipway up`: {error}") from error


async def ready(kube: "Kube", namespace: str, name: str) -> dict[str, Any]:
    """Return a ModelVersion that is ready.

    Raises:
        errors.UserError: it is not; the message says why.
    """
    version = await kube.get(kinds.MODEL_VERSION, namespace, name)
    status = version.get("status") or {}
    if status.get("phase") != "Ready":
        said = conditions.find(status.get("conditions"), "Ready") or {}
        raise errors.UserError(
            f"ModelVersion {name} is {status.get('phase', 'Pending')}: {said.get('reason', '')} {said.get('message', '')}".rstrip()
        )
    return version
