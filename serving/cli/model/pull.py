"""`slipway model pull`: an image of a registry becomes a ModelVersion; the controllers fetch it."""

import re
from typing import TYPE_CHECKING

from serving.cli.model import creation
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.images.registry import Reference

if TYPE_CHECKING:
    from serving.kube import Kube

_SHOWN = 12


def pull(reference: str, model: str, name: str, framework: str, meant: Target, timeout: float) -> None:
    """Make the version and follow it."""
    image = Reference.parse(reference)
    of = model or label(image.repository.rpartition("/")[2])
    called = name or label(f"{of}-{image.tag or image.digest.removeprefix('sha256:')[:_SHOWN] or 'latest'}")
    wanted = creation.version(
        meant.namespace, called, of, {"image": str(image)}, framework, "slipway model pull"
    )

    async def work(kube: "Kube") -> None:
        await creation.make(kube, wanted, timeout)

    with_kube(meant.kubeconfig, work)


def label(text: str) -> str:
    """Return a name that objects may have, as near to `text` as possible: RFC 1123, at most 63 characters."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower())[:63].strip("-") or "model"
