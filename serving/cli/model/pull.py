"""`slipway model pull`: makes a ModelVersion of an image in a registry, which the controllers fetch."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from serving.cli.model import creation
from serving.cli.model.creation import Framework, Timeout
from serving.cli.model.store import ImageName
from serving.cli.options import with_target
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.images.registry import Reference

if TYPE_CHECKING:
    from serving.kube import Kube

_DIGEST_CHARACTERS = 12
"""Length of a digest in the name of a version."""
_NAME_CHARACTERS = 63
"""Longest name of a version (RFC 1123)."""
_MODEL_CHARACTERS = 22
"""Part of a Model's name that a long tag leaves: beside it a SHA-1, such as that of a commit, is complete."""


@with_target
def pull(
    target: Target,
    reference: ImageName,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Make a version of this Model.  [default: the repository's last part]",
        ),
    ] = "",
    name: Annotated[
        str, typer.Option("--name", metavar="VERSION", help="[default: the Model and the tag]")
    ] = "",
    framework: Framework = "",
    timeout: Timeout = 600.0,
) -> None:
    """Make a version of a registry's image.

    And wait until it is ready.
    """
    image = Reference.parse(reference)
    model = model or label(image.repository.rpartition("/")[2])
    tag = image.tag or image.digest.removeprefix("sha256:")[:_DIGEST_CHARACTERS] or "latest"
    name = name or version_name(model, tag)
    version = creation.manifest(
        target.namespace, name, model, {"image": str(image)}, framework, "slipway model pull"
    )

    async def work(kube: "Kube") -> None:
        await creation.create(kube, version, timeout)

    with_kube(target.kubeconfig, work)


def version_name(model: str, end: str) -> str:
    """Return the Model's name and `end`; the former is cut first, as the latter differs by version."""
    room = max(_NAME_CHARACTERS - 1 - len(end), _MODEL_CHARACTERS)
    return label(f"{model[:room]}-{end}")


def label(text: str) -> str:
    """Return `text` as a valid name of an object: RFC 1123, at most 63 characters."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower())[:_NAME_CHARACTERS].strip("-") or "model"
