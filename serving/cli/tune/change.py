"""The change of an Inference that applies a recommendation, and the check of its target. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from serving import errors
from serving.cli.output import tables
from serving.cli.tune import summary
from serving.objects import Object
from serving.planning.gpu import pod as gpu_pod
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
_TUNED_FIELDS = ("resources", "batching", "template")
"""Fields of a predictor that the settings of a spec change."""
_RUNTIME_IMAGE_PATHS = re.compile(rf"spec\.containers\[{revision.CONTAINER}\]\.image(PullPolicy)?")
"""Paths of a Pod template that the installation's settings `runtime_images` decide."""
_MODEL_VOLUME_PATHS = re.compile(r"spec\.(initContainers|volumes)\[.*")
"""Paths of a Pod template that bring the files of the model into the Pod, by an image volume or by a copy, as
the cluster decides. A difference is no change of the predictor: a predictor's own template has no such
fields, and `check` compares the ModelVersions."""
_MAX_NAMES = 5
"""Most changed fields that an error message names."""
_ITEM_KEYS = ("name", "mountPath", "containerPort")
"""Fields that identify an item in a list of a Pod template: the first that all items have, each with a value
of its own."""


@dataclass(frozen=True)
class TuningResult:
    """The recommendation of an experiment."""

    name: str
    """Name of the experiment."""
    spec: ProfilingExperimentSpec
    recommendation: Object
    """`status.recommendation` of the experiment."""
    settings: tuple[Setting, ...]
    """The settings of the recommended spec."""
    unsettled: Doubt | None
    """Why the recommendation is not settled; None if it is settled."""

    @property
    def prices(self) -> Prices:
        """The prices of the experiment."""
        return self.spec.prices


def recommendation_of(experiment: Object) -> TuningResult:
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
    return TuningResult(name, spec, recommendation, settings, summary.why_unsettled(experiment))


def check(
    tuning: TuningResult, tuned_target: TunedTarget, version: Object, trial: Mapping[str, Any] | None
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
    measured, current = trial["spec"].get("modelVersion"), tuned_target.predictor.model_version
    if measured != current:
        raise _stale(f"predictor {predictor} serves {current} now, and {measured} was measured")
    measured_target = as_measured(tuned_target, trial)
    template = rendering.pod(measured_target, version, tuning.settings, tuning.prices).template
    if changed := _changed_paths(trial["spec"]["template"], template, tuned_target):
        fields = ", ".join(changed[:_MAX_NAMES]) + (", ..." if len(changed) > _MAX_NAMES else "")
        raise _stale(f"predictor {predictor} has changed since {trial_name} measured it: {fields}")


def as_measured(tuned_target: TunedTarget, trial: Mapping[str, Any] | None) -> TunedTarget:
    """Return the target with the trial's GPU mechanism in place of `auto`, which the cluster decides."""
    share = gpu_pod.annotated(trial["spec"]["template"]) if trial is not None else {}
    return replace(tuned_target, mechanism=share["mechanism"]) if share else tuned_target


def _changed_paths(measured: Object, current: Object, tuned_target: TunedTarget) -> list[str]:
    """Return the paths of two Pod templates that differ by a change of the predictor.

    The cluster decides how the Pod gets the model. The installation decides the image of a runtime, unless
    the predictor's own template has one.
    """
    changes = _differences(dict(_leaves(measured)), dict(_leaves(current)))
    paths = [change.path for change in changes if not _MODEL_VOLUME_PATHS.fullmatch(change.path)]
    if not revision.is_runtime(tuned_target.framework, tuned_target.engine):
        return paths
    own_template = tuned_target.predictor.template
    own_leaves = _leaves(own_template.model_dump(by_alias=True)) if own_template else ()
    own_paths = {f"spec.{path}" for path, _ in own_leaves}
    return [path for path in paths if path in own_paths or not _RUNTIME_IMAGE_PATHS.fullmatch(path)]


def _stale(reason: str) -> errors.UserError:
    return errors.UserError(f"{reason}\nTune again, or apply it with --force.")


def operations(inference: Mapping[str, Any], tuned_target: TunedTarget, tuned: Predictor) -> list[Object]:
    """Return the JSON patch from the predictor to the tuned one; empty where they are equal."""
    position = [p["name"] for p in inference["spec"]["predictors"]].index(tuned_target.predictor.name)
    path = f"/spec/predictors/{position}"
    before, after = _dumped(tuned_target.predictor), _dumped(tuned)
    changes = [
        {"op": "add", "path": f"{path}/{field}", "value": after.get(field, {})}
        for field in _TUNED_FIELDS
        if after.get(field) != before.get(field)
    ]
    name_test = {"op": "test", "path": f"{path}/name", "value": tuned_target.predictor.name}
    return [name_test, *changes] if changes else []


def diff(before: Predictor, after: Predictor) -> str:
    """Return a table of the changed fields; empty where none differs."""
    changes = _differences(dict(_leaves(_dumped(before))), dict(_leaves(_dumped(after))))
    rows = [
        [path, ABSENT if old is None else old, ABSENT if new is None else new] for path, old, new in changes
    ]
    return tables.text(["Field", "Now", "Tuned"], rows) if rows else ""


def describe_savings(tuning: TuningResult, tuned_target: TunedTarget, version: Object) -> str:
    """Return a sentence with the hourly cost of a tuned and of a current replica, and the measured objective.

    If the recommendation is not settled, a second line has the reason.
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
    objective = f"{summary.objective_measure(spec).sentence.format(value)}, " if value else ""
    sentence = f"{cost}{objective}measured by {source_trial}"
    unsettled = tuning.unsettled
    return sentence if unsettled is None else f"{sentence}\n{summary.unsettled_sentence(unsettled)}"


def _cost(tuned: float, current: float | None, unlimited: Sequence[str] = ()) -> str:
    """Return the first half of the sentence: the cost of a tuned replica, and of a current one.

    Args:
        tuned: the cost of an hour of a tuned replica, in the currency of the prices; 0 without prices.
        current: the cost of an hour of a current replica; None where none is deployed.
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


class _Difference(NamedTuple):
    """A scalar that differs between two documents; None where a document lacks the path."""

    path: str
    before: str | None
    after: str | None


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[_Difference]:
    """Return the differences of two documents, each given as the text of its scalars by path."""
    paths = dict.fromkeys([*before, *after])  # in order, each path once
    differences = [_Difference(path, before.get(path), after.get(path)) for path in paths]
    return [difference for difference in differences if difference.before != difference.after]


def _label_key(items: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the first of `_ITEM_KEYS` that identifies each item; None if there is none."""
    for key in _ITEM_KEYS:
        labels = [str(item[key]) for item in items if key in item]
        if len(labels) == len(set(labels)) == len(items):
            return key
    return None


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and text of each scalar, such as `spec.containers[predictor].image`.

    An item of a list of mappings has the value of its identifying field in its path, and that field is left
    out. If no field identifies all items of a list, each has its index. A list of scalars is one text.
    """
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from _leaves(child, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        label_key = _label_key(value)
        for index, item in enumerate(value):
            label = index if label_key is None else item[label_key]
            rest = {key: child for key, child in item.items() if key != label_key}
            yield from _leaves(rest, f"{path}[{label}]")
    elif isinstance(value, list):
        yield path, " ".join(map(str, value))
    else:
        yield path, str(value)
