"""Converts Morphling's servicePodTemplate into the target's template, with a container named `predictor`."""

from typing import Any

from serving.errors import UserError
from serving.objects import Object
from serving.planning.inference.revision import CONTAINER
from serving.resources import names
from tuner.convert.manifest_reader import Notes, items, mapping, plain, text

_NAMED = "a trial's objects are named and labelled by Slipway; it is left out"
_VOLUMES = f"is left out: the files of the ModelVersion are mounted at {names.MODEL_MOUNT}; put them there with `slipway model import`"
_POD: dict[str, str] = {
    "volumes": _VOLUMES,
    "initContainers": "is left out: what prepares a model belongs into the Job that makes its ModelVersion",
    "imagePullSecrets": "is left out: put it into the namespace's default service account",
    "serviceAccountName": "is left out: replicas have the namespace's default service account",
    "nodeSelector": "is left out: Slipway's Pods name no nodes; give the trials' namespace a default node selector",
    "restartPolicy": "is left out: the Pods of a Deployment are always restarted",
}
_NO_FIELD = "is left out: a predictor's template has containers and annotations only"


def template(value: Any, path: str, notes: Notes) -> Object:
    """Return `spec.target.template`.

    Raises:
        UserError: with the field; also without a container.
    """
    outer = mapping(value, path)
    notes.rest(outer, path, ("template",), _NAMED)
    inner = mapping(outer.get("template"), f"{path}.template")
    notes.rest(
        inner, f"{path}.template", ("metadata", "spec"), "Kubernetes has no such field; it is left out"
    )
    metadata = mapping(inner.get("metadata"), f"{path}.template.metadata")
    notes.rest(metadata, f"{path}.template.metadata", ("annotations",), _NAMED)
    annotations = {
        key: text(one, f"{path}.template.metadata.annotations.{key}")
        for key, one in mapping(metadata.get("annotations"), f"{path}.template.metadata.annotations").items()
    }
    where = f"{path}.template.spec"
    spec = mapping(inner.get("spec"), where)
    for key, one in spec.items():
        if key != "containers" and not (key == "restartPolicy" and one == "Always"):
            notes.add(f"{where}.{key}", _POD.get(key, _NO_FIELD))
    listed = items(spec.get("containers"), f"{where}.containers")
    if not listed:
        raise UserError(f"{where}.containers: is empty; the container that serves is needed")
    containers = [_container(one, f"{where}.containers[{i}]", i, notes) for i, one in enumerate(listed)]
    for i, one in enumerate(containers):
        if any(one["name"] == other["name"] for other in containers[:i]):
            raise UserError(f"{where}.containers[{i}].name: {one['name']} is there twice")
    found: Object = {"containers": containers}
    return {"metadata": {"annotations": annotations}, **found} if annotations else found


def _container(value: Any, path: str, position: int, notes: Notes) -> Object:
    container = dict(plain(mapping(value, path), path))
    name = text(container.get("name"), f"{path}.name")
    if position == 0:
        container["name"] = CONTAINER
        _put_port(container, path, notes)
        if "readinessProbe" not in container:
            notes.add(
                f"{path}.readinessProbe",
                f"is not set: Slipway asks GET /v2/health/ready on port {names.RUNTIME_PORT}; set it where the server answers elsewhere",
            )
    elif not name or name == CONTAINER:
        raise UserError(
            f"{path}.name: {'is missing' if not name else f'{CONTAINER} is the name of the first, which serves'}"
        )
    else:
        notes.add(
            path,
            f"runs beside {CONTAINER}, and settings are put into that one only; Morphling put them into all",
        )
    if container.pop("volumeMounts", None):
        notes.add(f"{path}.volumeMounts", _VOLUMES)
    if "env" in container:
        container["env"] = _env(container["env"], f"{path}.env")
    return container


def _put_port(container: Object, path: str, notes: Notes) -> None:
    """Keep only the port on which a predictor serves."""
    ports = [
        mapping(one, f"{path}.ports[{i}]")
        for i, one in enumerate(items(container.pop("ports", None), f"{path}.ports"))
    ]
    kept = [one for one in ports if one.get("containerPort") == names.RUNTIME_PORT]
    for i, one in enumerate(ports):
        if one not in kept:
            notes.add(
                f"{path}.ports[{i}]",
                f"is left out: a predictor serves on port {names.RUNTIME_PORT}, which the variable PORT says too; let the server"
                " listen there",
            )
    if kept:
        container["ports"] = kept[:1]


def _env(value: Any, path: str) -> list[Object]:
    """Return the variables; the last of a name counts, as in Kubernetes."""
    found: dict[str, Object] = {}
    for i, entry in enumerate(items(value, path)):
        one = mapping(entry, f"{path}[{i}]")
        name = text(one.get("name"), f"{path}[{i}].name")
        if not name:
            raise UserError(f"{path}[{i}].name: is missing")
        known = {"value": text(one["value"], f"{path}[{i}].value")} if "value" in one else {}
        found[name] = {**one, "name": name, **known}
    return list(found.values())
