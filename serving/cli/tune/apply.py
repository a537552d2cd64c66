"""`slipway tune apply`: writes the recommended spec to the Inference, or prints a new Inference."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from serving import engines, errors
from serving.cli.objects.conflicts import TUNE_MANAGER
from serving.cli.objects.patching import patched
from serving.cli.options import with_target
from serving.cli.session import with_kube
from serving.cli.target import Target, full_name
from serving.cli.tune import change
from serving.cli.tune.change import TuningResult
from serving.cli.tune.status import ExperimentName
from serving.data_dir import DataDir
from serving.objects import Object
from serving.resources import kinds
from serving.resources.engine import Engine
from serving.resources.formats import manifest_yaml
from tuner.specs import rendering
from tuner.specs.rendering import TunedTarget

if TYPE_CHECKING:
    from serving.kube import Kube


@with_target
def apply(
    target: Target,
    name: ExperimentName,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Apply it even if the predictor has changed since then.")
    ] = False,
) -> None:
    """Let the predictor run the recommended spec.

    For an experiment on a ModelVersion, print an Inference that runs it.
    """

    async def work(kube: "Kube") -> None:
        experiment = await kube.get(kinds.PROFILING_EXPERIMENT, target.namespace, name)
        tuning = change.recommendation_of(experiment)
        # The kubeconfig of an `up` is in its data directory, beside the engines that its user added.
        known = engines.known(DataDir(target.kubeconfig.parent).engines)
        if tuning.spec.target.inference is None:
            await _print_manifest(kube, target.namespace, tuning, known)
        else:
            await _apply(kube, target.namespace, tuning, known, dry_run=dry_run, force=force)

    with_kube(target.kubeconfig, work)


async def _apply(
    kube: "Kube",
    namespace: str,
    tuning: TuningResult,
    known: Mapping[str, Engine],
    *,
    dry_run: bool,
    force: bool,
) -> None:
    inference = await kube.get(kinds.INFERENCE, namespace, str(tuning.spec.target.inference))
    tuned_target = rendering.tuned_target(tuning.spec.target, inference, known)
    version = await kube.get(kinds.MODEL_VERSION, namespace, tuned_target.predictor.model_version)
    trial = await _measuring_trial(kube, namespace, tuning)
    tuned_target = change.as_measured(tuned_target, trial)
    if not force:
        change.check(tuning, tuned_target, version, trial)

    def operations(stored: Object) -> list[Object]:
        # The Inference may have changed since it was read above.
        current = rendering.tuned_target(tuning.spec.target, stored, known)
        if not force:
            change.check(tuning, current, version, trial)
        return change.operations(stored, current, rendering.tuned(current, tuning.settings))

    path = kinds.INFERENCE.path(namespace, inference["metadata"]["name"])
    query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
    await patched(kube, path, operations, TUNE_MANAGER, query)
    _print_result(inference, tuning, tuned_target, version, dry_run=dry_run)


def _print_result(
    inference: Object, tuning: TuningResult, tuned_target: TunedTarget, version: Object, *, dry_run: bool
) -> None:
    """Print the changes to standard output, and their savings to standard error.

    `inference`, `tuned_target` and `version` are of before the change.
    """
    name = full_name(kinds.INFERENCE, inference["metadata"]["name"])
    changes = change.diff(tuned_target.predictor, rendering.tuned(tuned_target, tuning.settings))
    if not changes:
        print(f"{name} unchanged: predictor {tuned_target.predictor.name} runs this spec already")
        return
    print(changes)
    print(f"{name} predictor {tuned_target.predictor.name} configured{' (dry run)' if dry_run else ''}")
    print(change.describe_savings(tuning, tuned_target, version), file=sys.stderr)
    if not dry_run:
        print("It serves once it is proven; `slipway get` shows when.", file=sys.stderr)


async def _print_manifest(
    kube: "Kube", namespace: str, tuning: TuningResult, known: Mapping[str, Engine]
) -> None:
    tuned_target = rendering.tuned_target(tuning.spec.target, None, known)
    version = await kube.get(kinds.MODEL_VERSION, namespace, tuned_target.predictor.model_version)
    tuned_target = change.as_measured(tuned_target, await _measuring_trial(kube, namespace, tuning))
    tuned = rendering.tuned(tuned_target, tuning.settings)
    manifest = change.manifest(version["spec"]["modelName"], namespace, tuned_target, tuned)
    print(yaml.dump(manifest, Dumper=manifest_yaml.Dumper, sort_keys=False), end="")
    print(change.describe_savings(tuning, tuned_target, version), file=sys.stderr)


async def _measuring_trial(kube: "Kube", namespace: str, tuning: TuningResult) -> Mapping[str, Any] | None:
    """Return the trial that measured the recommended spec; None if it was deleted."""
    try:
        return await kube.get(kinds.TRIAL, namespace, str(tuning.recommendation.get("trial")))
    except errors.NotFound:
        return None
