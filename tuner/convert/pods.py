"""Converts Morphling's servicePodTemplate into the target's template, with a container named `predictor`."""

from typing import Any

from serving.errors import UserError
from serving.objects import Object
from serving.planning.inference.revision import CONTAINER
from serving.resources import names
from tuner.convert.manifest_reader import Notes, items, mapping, plain, text

_NAMES_ADVICE = "is left out: Slipway names and labels the objects of a trial"
_VOLUMES_ADVICE = (
    f"is left out: the files of the ModelVersion are mounted at {names.MODEL_MOUNT}; import them with"
    " `slipway model import`"
)
_ADVICE_BY_FIELD: dict[str, str] = {
    "volumes": _VOLUMES_ADVICE,
    "initContainers": "is left out: the Job that makes the ModelVersion prepares the model",
    "imagePullSecrets": "is left out: add it to the namespace's default service account",
    "serviceAccountName": "is left out: replicas use the namespace's default service account",
    "nodeSelector": "is left out: Pods of Slipway select no nodes; set a default selector in the namespace",
    "restartPolicy": "is left out: the Pods of a Deployment are always restarted",
}
_FIELD_ADVICE = "is left out: a predictor's template has containers and annotations only"


def template(value: Any, path: str, notes: Notes) -> Object:
    """Return `spec.target.template`.

    Raises:
        UserError: with the field; also without a container.
    """
    outer = mapping(value, path)
    notes.add_unknown(outer, path, ("template",), _NAMES_ADVICE)
    inner = mapping(outer.get("template"), f"{path}.template")
    notes.add_unknown(
        inner, f"{path}.template", ("metadata", "spec"), "Kubernetes has no such field; it is left out"
    )
    metadata = mapping(inner.get("metadata"), f"{path}.template.metadata")
    notes.add_unknown(metadata, f"{path}.template.metadata", ("annotations",), _NAMES_ADVICE)
    annotations = {
        key: text(item, f"{path}.template.metadata.annotations.{key}")
        for key, item in mapping(metadata.get("annotations"), f"{path}.template.metadata.annotations").items()
    }
    where = f"{path}.template.spec"
    spec = mapping(inner.get("spec"), where)
    for key, item in spec.items():
        if key != "containers" and not (key == "restartPolicy" and item == "Always"):
            notes.add(f"{where}.{key}", _ADVICE_BY_FIELD.get(key, _FIELD_ADVICE))
    listed = items(spec.get("containers"), f"{where}.containers")
    if not listed:
        raise UserError(f"{where}.containers: is empty; it needs the container that serves")
    containers = [_container(item, f"{where}.containers[{i}]", i, notes) for i, item in enumerate(listed)]
    for i, item in enumerate(containers):
        if any(item["name"] == previous["name"] for previous in containers[:i]):
            raise UserError(f"{where}.containers[{i}].name: {item['name']} is listed twice")
    converted: Object = {"containers": containers}
    return {"metadata": {"annotations": annotations}, **converted} if annotations else converted


def _container(value: Any, path: str, position: int, notes: Notes) -> Object:
    """Return a container of the template; the first one, at position 0, is the predictor."""
    container = dict(plain(mapping(value, path), path))
    name = text(container.get("name"), f"{path}.name")
    if position == 0:
        container["name"] = CONTAINER
        _keep_serving_port(container, path, notes)
        if "readinessProbe" not in container:
            notes.add(
                f"{path}.readinessProbe",
                f"is not set: the default is GET /v2/health/ready on port {names.RUNTIME_PORT}; set it if the"
                " server answers elsewhere",
            )
    elif not name or name == CONTAINER:
        raise UserError(
            f"{path}.name: {'is missing' if not name else f'{CONTAINER} is reserved for the first container'}"
        )
    else:
        notes.add(
            path,
            f"runs beside {CONTAINER}; settings apply to {CONTAINER} only, in Morphling to all containers",
        )
    if container.pop("volumeMounts", None):
        notes.add(f"{path}.volumeMounts", _VOLUMES_ADVICE)
    if "env" in container:
        container["env"] = _env(container["env"], f"{path}.env")
    return container


def _keep_serving_port(container: Object, path: str, notes: Notes) -> None:
    """Remove all ports of a container but the one on which a predictor serves."""
    ports = [
        mapping(port, f"{path}.ports[{i}]")
        for i, port in enumerate(items(container.pop("ports", None), f"{path}.ports"))
    ]
    kept = [port for port in ports if port.get("containerPort") == names.RUNTIME_PORT]
    for i, port in enumerate(ports):
        if port not in kept:
            notes.add(
                f"{path}.ports[{i}]",
                f"is left out: a predictor serves on port {names.RUNTIME_PORT}, the value of the variable"
                " PORT; make the server listen there",
            )
    if kept:
        container["ports"] = kept[:1]


def _env(value: Any, path: str) -> list[Object]:
    """Return the variables; of several with one name the last counts, as in Kubernetes."""
    variables: dict[str, Object] = {}
    for i, entry in enumerate(items(value, path)):
        variable = mapping(entry, f"{path}[{i}]")
        name = text(variable.get("name"), f"{path}[{i}].name")
        if not name:
            raise UserError(f"{path}[{i}].name: is missing")
        known = {"value": text(variable["value"], f"{path}[{i}].value")} if "value" in variable else {}
        variables[name] = {**variable, "name": name, **known}
    return list(variables.values())
