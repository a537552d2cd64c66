"""Converts Morphling's tunableParameters into ours.

Morphling's use of them: pkg/controllers/trial/server_deploy.go (appendServiceEnv) and
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
_SAME = frozenset({"cpu", "memory"})
_GPU_MEMORY = frozenset({"nvidia.com/gpumem", "gpumem"})
_GPU_CORES = frozenset({"nvidia.com/gpucores", "gpucores"})
_MIB = "Mi"
_SCRATCH = (
    "Slipway does not tune it: Morphling sets ephemeral-storage, and a predictor's container needs none"
)
_WITHOUT: dict[str, str] = {
    names.GPU_RESOURCE: (
        "Slipway tunes the share of one GPU, and no number of GPUs: use gpu.memory and gpu.cores, or one"
        " experiment for each number"
    ),
    "storage": "Slipway does not tune storage: a replica has its model mounted",
    "ephemeral-storage": _SCRATCH,
}


@dataclass
class Tunables:
    """Our parameters with their origins."""

    categories: dict[str, list[Object]] = field(default_factory=dict)
    paths: dict[tuple[str, int], str] = field(default_factory=dict)
    """Path in Morphling's manifest, by category and position."""

    def manifest(self) -> list[Object]:
        """Return `spec.tunableParameters`."""
        return [{"category": name, "parameters": parameters} for name, parameters in self.categories.items()]

    def origin(self, path: str) -> str:
        """Return the path in Morphling's manifest for a path in ours, inside a parameter."""
        for i, (category, parameters) in enumerate(self.categories.items()):
            for j in range(len(parameters)):
                mine = f"spec.tunableParameters[{i}].parameters[{j}]"
                if path.startswith(mine):
                    return self.paths[category, j] + path.removeprefix(mine)
        return path


def tunables(value: Any, path: str, notes: Notes) -> Tunables:
    """Return the parameters; several entries of one category become one.

    Raises:
        UserError: with the field; also if no parameter remains.
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
    notes.add_unknown(
        value, path, ("name", "parameterType", "feasibleSpace"), "Morphling has no such field; it is left out"
    )
    name = text(value.get("name"), f"{path}.name")
    if not name:
        raise UserError(f"{path}.name: is missing")
    unit = ""
    if category == "resource":
        if name in _WITHOUT or not _resource(name):
            notes.add(path, f"{name} is left out: {_WITHOUT.get(name, _SCRATCH)}")
            return None
        unit = _MIB if name in _GPU_MEMORY else ""
        renamed = _resource(name)
        if name in _GPU_CORES:
            notes.add(f"{path}.name", f"{name} becomes gpu.cores; Morphling sets ephemeral-storage for it")
    else:
        renamed = _renamed(name, path, category, notes)
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
    if type_ == "discrete" and category != "resource" and not all(_is_amount(item) for item in listed):
        notes.add(
            f"{path}.parameterType", "becomes categorical: its values are not numbers, and have no order"
        )
        type_ = "categorical"
    return {"name": renamed, "parameterType": type_, "feasibleSpace": space}


def _resource(name: str) -> str:
    """Return our name of a resource; empty if we have none."""
    if name in _SAME:
        return name
    return "gpu.memory" if name in _GPU_MEMORY else "gpu.cores" if name in _GPU_CORES else ""


def _renamed(name: str, path: str, category: str, notes: Notes) -> str:
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
    notes.add_unknown(value, path, ("list", *_RANGE), "Morphling has no such field; it is left out")
    listed = [
        text(item, f"{path}.list[{i}]") for i, item in enumerate(items(value.get("list"), f"{path}.list"))
    ]
    ends = {key: end for key in _RANGE if (end := text(value.get(key), f"{path}.{key}"))}
    if listed and (type_ in ("discrete", "categorical") or not ends):
        for key in ends:
            notes.add(
                f"{path}.{key}", f"is left out: values of type {type_} come from the list, as in Morphling"
            )
        return {"list": [_with_unit(item, unit) for item in listed]}
    if type_ in ("discrete", "categorical"):
        raise UserError(f"{path}.list: is missing; values of type {type_} are given as a list")
    for key in _RANGE:
        if key not in ends:
            raise UserError(
                f"{path}.{key}: is missing; values of type {type_} are given by min, max and step"
            )
    if listed:
        notes.add(
            f"{path}.list",
            f"is left out: values of type {type_} come from min, max and step, as in Morphling",
        )
    return {key: _with_unit(end, unit) for key, end in ends.items()}


def _with_unit(number: str, unit: str) -> str:
    """Return HAMi's `3000`, which means MiB, as `3000Mi`."""
    return f"{number}{unit}" if unit and number.isdecimal() else number


def _is_amount(word: str) -> bool:
    try:
        quantity.parse(word)
    except ValueError:
        return False
    return True
