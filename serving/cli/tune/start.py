"""`slipway tune -f`: checks the space of an experiment and applies it."""

import sys
from typing import TYPE_CHECKING

from pydantic import ValidationError

from serving import errors
from serving.cli.objects import manifests
from serving.cli.objects.apply import apply_documents
from serving.cli.objects.manifests import Document
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.cli.tune import status, summary
from serving.report_pages import formatting
from serving.resources import kinds
from serving.resources.tuning.experiment import ProfilingExperimentSpec
from tuner.specs.space import Space

if TYPE_CHECKING:
    from serving.kube import Kube


def start(files: list[str], target: Target, *, watch: bool) -> None:
    """Apply manifests with at least one experiment; with `watch`, follow it to its end.

    Raises:
        errors.UserError: there is no experiment, or several to watch.
        errors.SpaceInvalid: the space of an experiment is invalid; nothing is applied.
    """
    documents = manifests.read(files, target)
    experiments = [document for document in documents if document.kind is kinds.PROFILING_EXPERIMENT]
    if not experiments:
        raise errors.UserError(f"there is no ProfilingExperiment in {', '.join(files)}")
    if watch and len(experiments) > 1:
        experiment_names = ", ".join(document.name for document in experiments)
        raise errors.UserError(
            f"--watch follows one experiment, and the files have {experiment_names}; "
            "follow each with `slipway tune status`"
        )
    sizes = {(document.namespace, document.name): _size(document) for document in experiments}
    apply_documents(documents, target)
    for document in experiments:
        print(announcement(document, sizes[document.namespace, document.name]), file=sys.stderr)
        if not watch:
            print(f"Follow it with `slipway tune status {document.name} -w`.", file=sys.stderr)
    if watch:
        _follow(experiments[0], target)


def announcement(document: Document, size: int | None) -> str:
    """Return the number of specs (unknown where `size` is None) and the budget of an experiment."""
    budget = (document.body.get("spec") or {}).get("maxNumTrials") or summary.DEFAULT_MAX_TRIALS
    specs = f"{formatting.count(size, 'spec')}, " if size is not None else ""
    return f"{document.name}: {specs}at most {formatting.count(budget, 'trial')}"


def _size(document: Document) -> int | None:
    """Return the number of specs; None if the experiment is invalid, which the API reports."""
    try:
        spec = ProfilingExperimentSpec.model_validate(document.body.get("spec"))
    except ValidationError:
        return None
    try:
        return Space.of(spec).size
    except errors.SpaceInvalid as error:
        path = f"{document.source}: ProfilingExperiment {document.name}: {error.field}"
        raise errors.SpaceInvalid(path, str(error).removeprefix(f"{error.field}: ")) from error


def _follow(document: Document, target: Target) -> None:
    async def work(kube: "Kube") -> str:
        return await status.follow(kube, str(document.namespace), document.name)

    status.finish(with_kube(target.kubeconfig, work), document.name)
