"""Converts Morphling's ProfilingExperiment into ours, and reports the fields without an equivalent.

https://github.com/kubedl-io/morphling/blob/main/api/v1alpha1/profilingexperiment_types.go
"""

import re
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from serving.errors import SpaceInvalid, UserError
from serving.objects import Object
from serving.resources import kinds
from serving.resources.base import NAME_PATTERN
from serving.resources.tuning.experiment import ProfilingExperimentSpec
from tuner.convert import load, pods
from tuner.convert.manifest_reader import Note, Notes, integer, items, mapping, plain, shown, text
from tuner.convert.parameters import Tunables, tunables
from tuner.specs.space import Space

API_VERSIONS = frozenset({"morphling.kubedl.io/v1alpha1", "tuning.kubedl.io/v1alpha1"})
"""The second is the API version of the first releases."""
_FIELDS = frozenset(
    {
        "tunableParameters",
        "objective",
        "algorithm",
        "maxNumTrials",
        "parallelism",
        "requestTemplate",
        "clientTemplate",
        "servicePodTemplate",
        "serviceProgressDeadline",
    }
)
_ALGORITHMS = {
    "": "bayesian",
    "bayesianopt": "bayesian",
    "bayesian": "bayesian",
    "grid": "grid",
    "random": "random",
}
_METADATA = frozenset({"name", "namespace", "labels", "annotations"})
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OWN = kinds.PROFILING_EXPERIMENT
_TEMPLATE = "spec.servicePodTemplate"


@dataclass(frozen=True)
class Converted:
    """The result of a conversion."""

    manifest: Object
    notes: tuple[Note, ...]


def convert(manifest: Any, model_version: str | None = None) -> Converted:
    """Return our manifest for one of Morphling; a manifest of ours is unchanged.

    Args:
        manifest: parsed YAML or JSON, unchecked.
        model_version: ModelVersion for the server; None derives a name from the model.

    Raises:
        UserError: the manifest cannot be converted; the message begins with the field's path.
    """
    body = mapping(manifest, "manifest")
    kind, version = body.get("kind"), body.get("apiVersion")
    if kind == _OWN.kind and version == _OWN.api_version:
        return Converted(plain(body, "manifest"), ())
    if not isinstance(version, str) or version not in API_VERSIONS:
        raise UserError(f"apiVersion: must be {' or '.join(sorted(API_VERSIONS))}, and is {shown(version)}")
    if kind != _OWN.kind:
        raise UserError(f"kind: must be {_OWN.kind}, and is {shown(kind)}; Slipway creates Trials itself")
    notes = Notes()
    notes.add_unknown(
        body,
        "",
        ("apiVersion", "kind", "metadata", "spec"),
        "is left out: it is state, and not specification",
    )
    metadata = _metadata(body.get("metadata"), notes)
    spec = mapping(body.get("spec"), "spec")
    notes.add_unknown(spec, "spec", _FIELDS, "Morphling has no such field; it is left out")
    parameters = tunables(spec.get("tunableParameters"), "spec.tunableParameters", notes)
    converted: Object = {
        "target": _target(spec, metadata["name"], model_version, notes),
        "tunableParameters": parameters.manifest(),
        "objective": _objective(spec.get("objective"), notes),
        **_load(spec, notes),
        "algorithm": _algorithm(spec.get("algorithm"), notes),
        **_budget(spec, notes),
    }
    _check(converted, parameters)
    result = {
        "apiVersion": _OWN.api_version,
        "kind": _OWN.kind,
        "metadata": metadata,
        "spec": converted,
    }
    return Converted(result, tuple(notes.entries))


def _metadata(value: Any, notes: Notes) -> Object:
    metadata = mapping(value, "metadata")
    name = text(metadata.get("name"), "metadata.name")
    if not name:
        raise UserError("metadata.name: is missing")
    notes.add_unknown(metadata, "metadata", _METADATA, "is left out: the API writes it")
    kept = {key: plain(metadata[key], f"metadata.{key}") for key in metadata if key in _METADATA}
    annotations = mapping(kept.get("annotations"), "metadata.annotations")
    if _APPLIED in annotations:
        notes.add(f"metadata.annotations.{_APPLIED}", "is left out: kubectl writes it")
        kept["annotations"] = {key: annotation for key, annotation in annotations.items() if key != _APPLIED}
    return {**kept, "name": name}


def _target(spec: Object, name: str, model_version: str | None, notes: Notes) -> Object:
    """Return `spec.target`; without `model_version`: named after the variable MODEL_NAME, else `name`."""
    template = pods.template(spec.get("servicePodTemplate"), _TEMPLATE, notes)
    if model_version is None:
        env = {entry["name"]: entry.get("value", "") for entry in template["containers"][0].get("env", [])}
        model = re.sub(r"[^a-z0-9]+", "-", str(env.get("MODEL_NAME") or name).lower())[:63].strip("-")
        model_version = model or "model"
        image = shown(template["containers"][0].get("image", ""))
        notes.add(
            f"{_TEMPLATE}.template.spec.containers[0].image",
            f"{image} holds or fetches the model itself; Slipway measures a ModelVersion: create"
            f" {model_version} with `slipway model import`, or name another with --model-version",
        )
    if re.fullmatch(NAME_PATTERN, model_version) is None:
        raise UserError(f"--model-version: {shown(model_version)} is not a valid name of a ModelVersion")
    return {"modelVersion": model_version, "framework": "custom", "template": template}


def _objective(value: Any, notes: Notes) -> Object:
    objective = mapping(value, "spec.objective")
    notes.add_unknown(
        objective,
        "spec.objective",
        ("type", "objectiveMetricName"),
        "Morphling has no such field; it is left out",
    )
    metric = text(objective.get("objectiveMetricName"), "spec.objective.objectiveMetricName")
    type_ = text(objective.get("type"), "spec.objective.type") or "maximize"
    if metric.lower() != "qps":
        raise UserError(
            f"spec.objective.objectiveMetricName: must be qps, and is {shown(metric)}; convert with qps, and"
            " write a metric of Slipway (throughput, throughputPerCost, costAtRate, latency, ...) into the"
            " result"
        )
    if type_ != "maximize":
        raise UserError(f"spec.objective.type: must be maximize for qps, and is {shown(type_)}")
    return {"type": "maximize", "objectiveMetricName": "throughput"}


def _algorithm(value: Any, notes: Notes) -> Object:
    algorithm = mapping(value, "spec.algorithm")
    known = ("algorithmName", "algorithmSettings")
    notes.add_unknown(algorithm, "spec.algorithm", known, "Morphling has no such field; it is left out")
    name = text(algorithm.get("algorithmName"), "spec.algorithm.algorithmName")
    if name.lower() not in _ALGORITHMS:
        raise UserError(
            f"spec.algorithm.algorithmName: must be one of grid, random and BayesianOpt, and is {shown(name)}"
        )
    path = "spec.algorithm.algorithmSettings"
    for i, _ in enumerate(items(algorithm.get("algorithmSettings"), path)):
        notes.add(f"{path}[{i}]", "is left out: Slipway's algorithms have no settings but algorithm.seed")
    return {"algorithmName": _ALGORITHMS[name.lower()]}


def _load(spec: Object, notes: Notes) -> Object:
    converted, constraints = load.client(spec.get("clientTemplate"), "spec.clientTemplate", notes)
    if request := load.request(spec.get("requestTemplate"), "spec.requestTemplate", notes):
        converted = {**converted, "requestTemplate": request}
    return {
        **({"constraints": constraints} if constraints else {}),
        **({"load": converted} if converted else {}),
    }


def _budget(spec: Object, notes: Notes) -> Object:
    budget: Object = {}
    for name in ("maxNumTrials", "parallelism"):
        if (number := integer(spec.get(name), f"spec.{name}")) is not None:
            budget[name] = number
    if "maxNumTrials" not in budget:
        notes.add("spec.maxNumTrials", "is not set: the default of Slipway is 20 trials")
    deadline = integer(spec.get("serviceProgressDeadline"), "spec.serviceProgressDeadline")
    if deadline is not None:
        budget["serviceProgressDeadline"] = f"{deadline}s"
    return budget


def _check(spec: Object, parameters: Tunables) -> None:
    """Refuse the fields that our kind does not accept, with the path in Morphling's manifest."""
    try:
        Space.of(ProfilingExperimentSpec.model_validate(spec))
    except ValidationError as error:
        first = error.errors()[0]
        path = "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        path = path.replace("spec.target.template", f"{_TEMPLATE}.template.spec")
        raise UserError(
            f"{parameters.origin(path)}: {first['msg']}, and it is {shown(first['input'])}"
        ) from error
    except SpaceInvalid as error:
        message = str(error).removeprefix(f"{error.field}: ")
        raise UserError(f"{parameters.origin(error.field)}: {message}") from error
