"""The change of an Inference that applies a recommendation, and the check of its target. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving import errors
from serving.cli.output import tables
from serving.cli.tune import summary
from serving.objects import Object
from serving.planning.inference import revision
from serving.resources import kinds
from serving.resources.inference import Predictor
from serving.resources.tuning.experiment import Prices, ProfilingExperimentSpec, Setting
from tuner.settled import Doubt
from tuner.specs import prices, rendering
from tuner.specs.rendering import TunedTarget

ABSENT = "-"
ARM = "stable"
"""Name of the predictor in a new Inference."""
_TUNED = ("resources", "batching", "template")
"""Fields of a predictor that settings change."""
_OF_THE_INSTALLATION = re.compile(rf"spec\.containers\[{revision.CONTAINER}\]\.image(PullPolicy)?")
"""Paths of a Pod template that the settings `runtime_images` give."""
_OF_THE_CLUSTER = re.compile(r"spec\.(initContainers|volumes)\[.*")
"""Paths of a Pod template by which a cluster gives a Pod the files of its model; the ModelVersion is compared
itself, and a predictor's own template has none of them."""
_MAX_NAMES = 5
"""Changed fields in an error message."""


@dataclass(frozen=True)
class Tuning:
    """The recommendation of an experiment."""

    name: str
    spec: ProfilingExperimentSpec
    recommendation: Object
    settings: tuple[Setting, ...]
    unsettled: Doubt | None
    """Why it is not settled; None if it is."""

    @property
    def prices(self) -> Prices:
        """The prices of the experiment."""
        return self.spec.prices


def of(experiment: Object) -> Tuning:
    """Return the recommendation of an experiment.

    Raises:
        errors.UserError: the experiment has none; the message has the reason.
    """
    name = experiment["metadata"]["name"]
    recommendation = (experiment.get("status") or {}).get("recommendation")
    if not recommendation:
        reason = summary.reason(experiment)
        if summary.has_ended(experiment):
            raise errors.UserError(f"experiment {name} has ended without a recommendation: {reason}")
        phase = summary.phase(experiment)
        raise errors.UserError(
            f"experiment {name} has no recommendation yet: {phase}{f', {reason}' if reason else ''}\n"
            f"Follow it with `slipway tune status {name} -w`."
        )
    settings = tuple(Setting.model_validate(setting) for setting in recommendation.get("settings") or [])
    spec = ProfilingExperimentSpec.model_validate(experiment["spec"])
    return Tuning(name, spec, recommendation, settings, summary.why_unsettled(experiment))


def check(
    tuning: Tuning, tuned_target: TunedTarget, version: Object, trial: Mapping[str, Any] | None
) -> None:
    """Refuse a target that has changed since it was measured, apart from the settings themselves.

    Args:
        tuning: the recommendation.
        tuned_target: the current target.
        version: the ModelVersion that the target serves.
        trial: the trial that measured the recommended spec; None where it was deleted.

    Raises:
        errors.UserError: the message names the changes.
    """
    trial_name = tuning.recommendation.get("trial")
    if trial is None:
        raise _stale(f"trial {trial_name}, which measured the spec, was deleted: nothing to compare with")
    predictor = tuned_target.predictor.name
    measured, current = trial["spec"].get("modelVersion"), version["metadata"]["name"]
    if measured != current:
        raise _stale(f"predictor {predictor} serves {current} now, and {measured} was measured")
    template = rendering.pod(tuned_target, version, tuning.settings, tuning.prices).template
    if changed := _changes(trial["spec"]["template"], template, tuned_target):
        fields = ", ".join(changed[:_MAX_NAMES]) + (", ..." if len(changed) > _MAX_NAMES else "")
        raise _stale(f"predictor {predictor} has changed since {trial_name} measured it: {fields}")


def _changes(measured: Object, current: Object, tuned_target: TunedTarget) -> list[str]:
    """Return the paths that differ, but for those of the cluster, and for the image of a model server of
    Slipway: it is the installation's, unless the target's own template has one.
    """
    changed = [path for path in _differing(measured, current) if not _OF_THE_CLUSTER.fullmatch(path)]
    if not revision.is_runtime(tuned_target.framework, tuned_target.engine):
        return changed
    template = tuned_target.predictor.template
    target = {path for path, _ in _leaves(template.model_dump(by_alias=True))} if template else set()
    return [
        path
        for path in changed
        if not _OF_THE_INSTALLATION.fullmatch(path) or path.removeprefix("spec.") in target
    ]


def _stale(reason: str) -> errors.UserError:
    return errors.UserError(f"{reason}\nTune again, or apply it with --force.")


def operations(inference: Mapping[str, Any], tuned_target: TunedTarget, tuned: Predictor) -> list[Object]:
    """Return the JSON patch from the predictor to the tuned one; empty where they are equal."""
    position = [p["name"] for p in inference["spec"]["predictors"]].index(tuned_target.predictor.name)
    path = f"/spec/predictors/{position}"
    before, after = _dumped(tuned_target.predictor), _dumped(tuned)
    changes = [
        {"op": "add", "path": f"{path}/{field}", "value": after.get(field, {})}
        for field in _TUNED
        if after.get(field) != before.get(field)
    ]
    name_test = {"op": "test", "path": f"{path}/name", "value": tuned_target.predictor.name}
    return [name_test, *changes] if changes else []


def diff(before: Predictor, after: Predictor) -> str:
    """Return a table of the changed fields; empty where none differs."""
    old, new = dict(_leaves(_dumped(before))), dict(_leaves(_dumped(after)))
    rows = [
        [path, old.get(path, ABSENT), new.get(path, ABSENT)]
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path)
    ]
    return tables.text(["Field", "Now", "Tuned"], rows) if rows else ""


def describe_savings(tuning: Tuning, tuned_target: TunedTarget, version: Object) -> str:
    """Return a sentence with the cost of a tuned and of a current replica, and the measured objective.

    Another line says if the recommendation is not settled.
    """
    recommendation = tuning.recommendation
    tuned_cost = rendering.pod(tuned_target, version, tuning.settings, tuning.prices).cost_per_hour
    current = rendering.pod(tuned_target, version, (), tuning.prices)
    resources = [setting.name for setting in tuning.settings if setting.category == "resource"]
    unlimited = prices.unlimited(current.template["spec"]["containers"], resources)
    spec = tuning.spec.model_dump(by_alias=True, exclude_none=True)
    is_deployed = tuning.spec.target.inference is not None
    cost = _cost(tuned_cost, current.cost_per_hour, unlimited) if is_deployed else _cost(tuned_cost, None)
    value, source_trial = summary.objective(spec, recommendation), recommendation.get("trial")
    objective = f"{summary.measured(spec).sentence.format(value)}, " if value else ""
    sentence = f"{cost}{objective}measured by {source_trial}"
    unsettled = tuning.unsettled
    return sentence if unsettled is None else f"{sentence}\n{summary.unsettled_sentence(unsettled)}"


def _cost(tuned: float, current: float | None, unlimited: Sequence[str] = ()) -> str:
    """Return the first half of the sentence: the cost of a tuned replica, and of a current one.

    Args:
        tuned: an hour of a tuned replica; 0 without prices.
        current: an hour of a current replica; None where none is deployed.
        unlimited: resources without a limit today, so that the current cost is unknown.
    """
    if not tuned:
        return ""
    cost = f"a replica costs {tuned:.4g} an hour"
    if unlimited:
        return f"{cost} (today it has no limit of {' and '.join(unlimited)}, so its cost is unknown); "
    if not current or tuned == current:
        return f"{cost}; "
    saved = 1 - tuned / current
    return f"{cost} instead of {current:.4g}, {abs(saved):.0%} {'less' if saved > 0 else 'more'}; "


def manifest(name: str, namespace: str, tuned_target: TunedTarget, tuned: Predictor) -> Object:
    """Return an Inference of one predictor that runs the recommended spec of a ModelVersion."""
    predictor = {**_dumped(tuned), "name": ARM}
    return {
        "apiVersion": kinds.INFERENCE.api_version,
        "kind": kinds.INFERENCE.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"framework": tuned_target.framework, "predictors": [predictor]},
    }


def _dumped(predictor: Predictor) -> Object:
    """Return the fields of a predictor that differ from the defaults."""
    return predictor.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)


def _differing(measured: Any, current: Any) -> list[str]:
    """Return the paths of the scalars that differ."""
    before, after = dict(_leaves(measured)), dict(_leaves(current))
    return [path for path in dict.fromkeys([*before, *after]) if before.get(path) != after.get(path)]


_KEYS = ("name", "mountPath", "containerPort")
"""Keys of the items in lists of a Pod template."""


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and text of each scalar; items of a list have their name in the path, if they have one."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            if not (key in _KEYS and path.endswith("]")):
                yield from _leaves(child, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            label = next((item[key] for key in _KEYS if key in item), index)
            yield from _leaves(item, f"{path}[{label}]")
    elif isinstance(value, list):
        yield path, " ".join(map(str, value))
    else:
        yield path, str(value)
