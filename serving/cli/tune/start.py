"""`slipway tune -f`: starting an experiment, as `apply` does, once it is clear that its space is one."""

import sys
from typing import TYPE_CHECKING

from pydantic import ValidationError

from serving import errors
from serving.cli.objects import apply, manifests
from serving.cli.objects.manifests import Document
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.cli.tune import status
from serving.pages import figures
from serving.resources import kinds
from serving.resources.experiment import ProfilingExperimentSpec
from tuner.specs.space import Space

if TYPE_CHECKING:
    from serving.kube import Kube


def start(files: list[str], meant: Target, *, watch: bool) -> None:
    """Apply the manifests, of which at least one is an experiment; with `watch`, follow that one to its end.

    Raises:
        errors.UserError: there is no experiment, or several to watch.
        errors.SpaceInvalid: its space is none; nothing is applied then.
    """
    documents = manifests.read(files, meant)
    experiments = [document for document in documents if document.kind is kinds.PROFILING_EXPERIMENT]
    if not experiments:
        raise errors.UserError(f"there is no ProfilingExperiment in {', '.join(files)}")
    if watch and len(experiments) > 1:
        named = ", ".join(document.name for document in experiments)
        raise errors.UserError(
            f"--watch follows one experiment, and there are {named}; follow each with `slipway tune status`"
        )
    sizes = {(document.namespace, document.name): _size(document) for document in experiments}
    apply.documents(documents, meant, force=False, dry_run=False)
    for document in experiments:
        print(started(document, sizes[document.namespace, document.name]), file=sys.stderr)
        if not watch:
            print(f"Follow it with `slipway tune status {document.name} -w`.", file=sys.stderr)
    if watch:
        _follow(experiments[0], meant)


def started(document: Document, size: int | None) -> str:
    """Return how much there is to do; `size` None: how many specs there are is not known."""
    budget = (document.body.get("spec") or {}).get("maxNumTrials") or 20
    specs = f"{figures.count(size, 'spec')}, " if size is not None else ""
    return f"{document.name}: {specs}at most {figures.count(budget, 'trial')}"


def _size(document: Document) -> int | None:
    """Return how many specs there are; None where the API will refuse the object with better words."""
    try:
        spec = ProfilingExperimentSpec.model_validate(document.body.get("spec"))
    except ValidationError:
        return None
    try:
        return Space.of(spec).size
    except errors.SpaceInvalid as error:
        where = f"{document.source}: ProfilingExperiment {document.name}: {error.field}"
        raise errors.SpaceInvalid(where, str(error).removeprefix(f"{error.field}: ")) from error


def _follow(document: Document, meant: Target) -> None:
    async def work(kube: "Kube") -> str:
        return await status.follow(kube, str(document.namespace), document.name)

    status.ended(with_kube(meant.kubeconfig, work), document.name)
