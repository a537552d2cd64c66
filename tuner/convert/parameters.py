"""Converts the tunableParameters of Morphling into those of Slipway.

Morphling reads them in pkg/controllers/trial/server_deploy.go (appendServiceEnv) and
pkg/controllers/experiment/sampling_client/sampling_client.go (ConvertFeasibleSpace) of
github.com/kubedl-io/morphling.
"""

from dataclasses import dataclass, field
from typing import Any

from serving.errors import UserError
from serving.objects import Object
from serving.resources import names
from serving.resources.formats import quantity
from tuner.convert.manifest_reader import Notes, items, mapping, shown, text

_CATEGORIES = ("resource", "env", "args")
_TYPES = ("double", "int", "discrete", "categorical")
_RANGE = ("min", "max", "step")
_SAME_NAMES = frozenset({"cpu", "memory"})
"""Resources with one name in Morphling and Slipway."""
_GPU_MEMORY = frozenset({"nvidia.com/gpumem", "gpumem"})
_GPU_CORES = frozenset({"nvidia.com/gpucores", "gpucores"})
_OTHER_RESOURCE = (
    "Slipway does not tune it: Morphling sets ephemeral-storage, and a predictor's container needs none"
)
"""Note on a resource that Morphling does not know: Morphling tunes ephemeral-storage for it."""
_NOT_TUNED: dict[str, str] = {
    names.GPU_RESOURCE: (
        "Slipway tunes the share of one GPU, and no number of GPUs: use gpu.memory and gpu.cores, or one"
        " experiment for each number"
    ),
    "storage": "Slipway does not tune storage: a replica has its model mounted",
    "ephemeral-storage": _OTHER_RESOURCE,
}
"""Notes on resources that Slipway does not tune, by name."""


@dataclass
class Tunables:
    """Slipway's parameters, and their paths in Morphling's manifest."""

    categories: dict[str, list[Object]] = field(default_factory=dict)
    """Parameters by category."""
    paths: dict[tuple[str, int], str] = field(default_factory=dict)
    """Path in Morphling's manifest, by category and index in the category."""

    def manifest(self) -> list[Object]:
        """Return `spec.tunableParameters`."""
        return [{"category": name, "parameters": parameters} for name, parameters in self.categories.items()]

    def origin(self, path: str) -> str:
        """Return the path in Morphling's manifest for a path in Slipway's, or the path itself without one."""
        for i, (category, parameters) in enumerate(self.categories.items()):
            for j in range(len(parameters)):
                prefix = f"spec.tunableParameters[{i}].parameters[{j}]"
                if path.startswith(prefix):
                    return self.paths[category, j] + path.removeprefix(prefix)
        return path


def tunables(value: Any, path: str, notes: Notes) -> Tunables:
    """Return the parameters of Morphling's `value` at `path`; several entries of one category become one.

    Raises:
        UserError: names an invalid field; also if no parameter remains.
    """
    converted = Tunables()
    for i, entry in enumerate(items(value, path)):
        group = mapping(entry, f"{path}[{i}]")
        notes.add_unknown(
            group, f"{path}[{i}]", ("category", "parameters"), "Morphling has no such field; it is left out"
        )
        category = text(group.get("category"), f"{path}[{i}].category")
        if category not in _CATEGORIES:
            raise UserError(
                f"{path}[{i}].category: must be one of {', '.join(_CATEGORIES)}, and is {shown(category)}"
            )
        for j, item in enumerate(items(group.get("parameters"), f"{path}[{i}].parameters")):
            where = f"{path}[{i}].parameters[{j}]"
            parameter = _parameter(mapping(item, where), where, category, notes)
            if parameter is None:
                continue
            parameters = converted.categories.setdefault(category, [])
            if any(other["name"] == parameter["name"] for other in parameters):
                raise UserError(f"{where}.name: {parameter['name']} is tuned twice in {category}")
            converted.paths[category, len(parameters)] = where
            parameters.append(parameter)
    if not converted.categories:
        raise UserError(f"{path}: has no parameter that Slipway can tune")
    return converted


def _parameter(value: Object, path: str, category: str, notes: Notes) -> Object | None:
    """Return a parameter; None, with a note, for a resource that Slipway does not tune."""
    notes.add_unknown(
        value, path, ("name", "parameterType", "feasibleSpace"), "Morphling has no such field; it is left out"
    )
    name = text(value.get("name"), f"{path}.name")
    if not name:
        raise UserError(f"{path}.name: is missing")
    unit = ""
    if category == "resource":
        renamed = _resource(name)
        if not renamed:
            notes.add(path, f"{name} is left out: {_NOT_TUNED.get(name, _OTHER_RESOURCE)}")
            return None
        unit = "Mi" if name in _GPU_MEMORY else ""
        if name in _GPU_CORES:
            notes.add(f"{path}.name", f"{name} becomes gpu.cores; Morphling sets ephemeral-storage for it")
    else:
        renamed = _variable_or_argument(name, path, category, notes)
    type_ = text(value.get("parameterType"), f"{path}.parameterType") or "discrete"
    if type_ not in _TYPES:
        raise UserError(f"{path}.parameterType: must be one of {', '.join(_TYPES)}, and is {shown(type_)}")
    space = _space(
        mapping(value.get("feasibleSpace"), f"{path}.feasibleSpace"),
        f"{path}.feasibleSpace",
        type_,
        unit,
        notes,
    )
    listed = space.get("list", [])
    if type_ == "discrete" and category != "resource" and not all(_is_quantity(item) for item in listed):
        notes.add(
            f"{path}.parameterType", "becomes categorical: its values are not numbers, and have no order"
        )
        type_ = "categorical"
    return {"name": renamed, "parameterType": type_, "feasibleSpace": space}


def _resource(name: str) -> str:
    """Return Slipway's name of a resource; empty if Slipway does not tune it."""
    if name in _SAME_NAMES:
        return name
    return "gpu.memory" if name in _GPU_MEMORY else "gpu.cores" if name in _GPU_CORES else ""


def _variable_or_argument(name: str, path: str, category: str, notes: Notes) -> str:
    """Return Slipway's name of an environment variable or of an argument, with notes on the differences."""
    if category == "args":
        word = f"{name if name.startswith('-') else f'--{name}'}=VALUE"
        notes.add(
            f"{path}.name",
            f"Morphling passes the bare value; Slipway passes {word}, which your server must accept",
        )
        return name
    renamed = name.upper().replace(".", "_")
    if renamed == "BATCH_SIZE":
        notes.add(
            f"{path}.name",
            "Morphling's client sends this number of items in a request and counts items; Slipway counts"
            " requests. With a runtime of Slipway, tune batchSize of the category batching instead",
        )
    if renamed != name:
        notes.add(f"{path}.name", f"becomes {renamed}, the name that Morphling sets")
    return renamed


def _space(value: Object, path: str, type_: str, unit: str, notes: Notes) -> Object:
    """Return the `feasibleSpace` of a parameter: a list of values, or min, max and step."""
    notes.add_unknown(value, path, ("list", *_RANGE), "Morphling has no such field; it is left out")
    listed = [
        text(item, f"{path}.list[{i}]") for i, item in enumerate(items(value.get("list"), f"{path}.list"))
    ]
    span = {key: amount for key in _RANGE if (amount := text(value.get(key), f"{path}.{key}"))}
    if listed and (type_ in ("discrete", "categorical") or not span):
        for key in span:
            notes.add(
                f"{path}.{key}", f"is left out: values of type {type_} come from the list, as in Morphling"
            )
        return {"list": [_with_unit(item, unit) for item in listed]}
    if type_ in ("discrete", "categorical"):
        raise UserError(f"{path}.list: is missing; values of type {type_} are given as a list")
    for key in _RANGE:
        if key not in span:
            raise UserError(
                f"{path}.{key}: is missing; values of type {type_} are given by min, max and step"
            )
    if listed:
        notes.add(
            f"{path}.list",
            f"is left out: values of type {type_} come from min, max and step, as in Morphling",
        )
    return {key: _with_unit(amount, unit) for key, amount in span.items()}


def _with_unit(number: str, unit: str) -> str:
    """Return a whole number with the unit, other text unchanged.

    `3000` becomes `3000Mi`, as the GPU scheduler HAMi counts in MiB.
    """
    return f"{number}{unit}" if unit and number.isdecimal() else number


def _is_quantity(word: str) -> bool:
    try:
        quantity.parse(word)
    except ValueError:
        return False
    return True
