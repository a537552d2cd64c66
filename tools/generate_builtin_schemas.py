"""Writes serving/embedded/apiserver/schema/builtin.json: the schemas of the built-in kinds that we serve.

Field names, types and descriptions come from the `kubernetes` client's models. The merge rules of lists are
not in the models; the tables here follow the Go types' markers `listType`, `listMapKey`, `patchStrategy` and
`mapType` (k8s.io/api/{core,apps,batch,discovery,coordination}/v1/types.go). Run it after an upgrade of the
client: `python tools/generate_builtin_schemas.py`. A test compares the checked-in file with its output.
"""

import json
import sys
from pathlib import Path
from typing import Any

from kubernetes.client import models

TARGET = Path(__file__).parent.parent / "serving" / "embedded" / "apiserver" / "schema" / "builtin.json"

# A definition has its model's name without the API version, such as Container for V1Container. The tables
# name definitions, and fields as DEFINITION.FIELD.
KINDS = {
    "Namespace": "V1Namespace",
    "Service": "V1Service",
    "Pod": "V1Pod",
    "ConfigMap": "V1ConfigMap",
    "Secret": "V1Secret",
    "Event": "CoreV1Event",
    "Deployment": "V1Deployment",
    "Job": "V1Job",
    "EndpointSlice": "V1EndpointSlice",
    "Lease": "V1Lease",
}
"""The model of each kind."""

HONOURED_VOLUMES = frozenset(
    {"name", "emptyDir", "hostPath", "configMap", "secret", "image", "projected", "downwardAPI"}
)
"""Other volume sources stay known by name, so that they are refused by path and not as unknown fields."""

LIST_MAPS: dict[str, tuple[str, ...]] = {
    "Container.env": ("name",),
    "Container.volumeMounts": ("mountPath",),
    "Container.volumeDevices": ("devicePath",),
    "Container.ports": ("containerPort", "protocol"),
    "EphemeralContainer.env": ("name",),
    "EphemeralContainer.volumeMounts": ("mountPath",),
    "EphemeralContainer.volumeDevices": ("devicePath",),
    "EphemeralContainer.ports": ("containerPort", "protocol"),
    "PodSpec.containers": ("name",),
    "PodSpec.initContainers": ("name",),
    "PodSpec.ephemeralContainers": ("name",),
    "PodSpec.volumes": ("name",),
    "PodSpec.imagePullSecrets": ("name",),
    "PodSpec.hostAliases": ("ip",),
    "PodSpec.resourceClaims": ("name",),
    "PodSpec.schedulingGates": ("name",),
    "PodSpec.topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "PodStatus.conditions": ("type",),
    "PodStatus.podIPs": ("ip",),
    "PodStatus.resourceClaimStatuses": ("name",),
    "ResourceRequirements.claims": ("name",),
    "ServiceSpec.ports": ("port", "protocol"),
    "ServiceStatus.conditions": ("type",),
    "NamespaceStatus.conditions": ("type",),
    "DeploymentStatus.conditions": ("type",),
    "ObjectMeta.ownerReferences": ("uid",),
}
"""Lists of objects, and the fields that identify an item: `listType=map`, `listMapKey`."""
SETS = frozenset({"ObjectMeta.finalizers"})
"""Lists of scalars without duplicates: `listType=set`. All other lists are atomic."""
MERGED_LISTS: dict[str, str] = {
    "Container.ports": "containerPort",
    "EphemeralContainer.ports": "containerPort",
    "ServiceSpec.ports": "port",
    "PodSpec.topologySpreadConstraints": "topologyKey",
    "JobStatus.conditions": "type",
    "PodStatus.hostIPs": "ip",
    "ObjectMeta.finalizers": "",
}
"""Merge keys of strategic merge patches, of lists that are not in `LIST_MAPS` or have several keys there;
empty: a list of scalars."""
RETAIN_KEYS = {"PodSpec.volumes": "merge,retainKeys", "DeploymentSpec.strategy": "retainKeys"}
"""Fields whose `patchStrategy` has `retainKeys`, with the whole strategy."""
ATOMIC_MAPS = frozenset(
    {
        "LabelSelector",
        "ObjectReference",
        "LocalObjectReference",
        "ConfigMapKeySelector",
        "SecretKeySelector",
        "ObjectFieldSelector",
        "ResourceFieldSelector",
        "NodeSelector",
        "NodeSelectorTerm",
        "OwnerReference",
        "SecretReference",
        "TypedLocalObjectReference",
    }
)
"""Definitions that server-side apply replaces as a whole: `mapType=atomic`."""
ATOMIC_FIELDS = frozenset({"PodSpec.nodeSelector", "ServiceSpec.selector"})
"""Maps of strings that server-side apply replaces as a whole."""
QUANTITY_MAPS = frozenset(
    {
        "ResourceRequirements.limits",
        "ResourceRequirements.requests",
        "PodSpec.overhead",
        "VolumeResourceRequirements.limits",
        "VolumeResourceRequirements.requests",
        "ContainerStatus.allocatedResources",
    }
)
"""Maps of quantities; the models have strings for quantities."""
QUANTITIES = frozenset({"EmptyDirVolumeSource.sizeLimit", "ResourceFieldSelector.divisor"})
"""Quantities."""
INT64 = frozenset(
    {
        "ConfigMapVolumeSource.defaultUser",
        "ClusterTrustBundleProjection.user",
        "Condition.observedGeneration",
        "DeploymentStatus.observedGeneration",
        "DownwardAPIVolumeFile.user",
        "DownwardAPIVolumeSource.defaultUser",
        "JobSpec.activeDeadlineSeconds",
        "KeyToPath.user",
        "LinuxContainerUser.gid",
        "LinuxContainerUser.supplementalGroups",
        "LinuxContainerUser.uid",
        "ObjectMeta.deletionGracePeriodSeconds",
        "ObjectMeta.generation",
        "PodCertificateProjection.user",
        "PodCondition.observedGeneration",
        "PodSecurityContext.fsGroup",
        "PodSecurityContext.runAsGroup",
        "PodSecurityContext.runAsUser",
        "PodSecurityContext.supplementalGroups",
        "PodSpec.activeDeadlineSeconds",
        "PodSpec.terminationGracePeriodSeconds",
        "PodStatus.observedGeneration",
        "Probe.terminationGracePeriodSeconds",
        "ProjectedVolumeSource.defaultUser",
        "SecretVolumeSource.defaultUser",
        "SecurityContext.runAsGroup",
        "SecurityContext.runAsUser",
        "ServiceAccountTokenProjection.expirationSeconds",
        "ServiceAccountTokenProjection.user",
        "SleepAction.seconds",
        "Toleration.tolerationSeconds",
    }
)
"""Integers, and lists of integers, of 64 bits; all others are int32."""
KEY_DEFAULTS = {"ContainerPort.protocol": "TCP", "ServicePort.protocol": "TCP"}
"""Defaults of fields that are list-map keys: the key of an item that omits them."""


def generate() -> str:
    """Return the file's text."""
    raw: dict[str, Any] = {}
    for name in KINDS.values():
        schema = getattr(models, name).model_json_schema(by_alias=True)
        raw.update(schema.pop("$defs"))
        raw[name] = schema
    definitions = {_name(name): _definition(_name(name), schema) for name, schema in raw.items()}
    kinds = {kind: _name(name) for kind, name in KINDS.items()}
    used = _reachable(definitions, list(kinds.values()))
    return (
        json.dumps(
            {"kinds": kinds, "definitions": {name: definitions[name] for name in sorted(used)}},
            separators=(",", ":"),
            sort_keys=True,
            ensure_ascii=False,
        )
        + "\n"
    )


def _name(model: str) -> str:
    """Return the name of the definition of a model: the model's name without the API version."""
    for prefix in ("CoreV1", "DiscoveryV1", "V1alpha3", "V1"):
        if model.startswith(prefix):
            return model.removeprefix(prefix)
    return model


def _definition(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI schema of a definition, from pydantic's JSON schema of its model."""
    properties = {
        field: _field(f"{name}.{field}", child) for field, child in schema.get("properties", {}).items()
    }
    if name == "Volume":
        for field in properties.keys() - HONOURED_VOLUMES:
            properties[field] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    out: dict[str, Any] = {"type": "object", "properties": properties}
    if text := _first_paragraph(schema):
        out["description"] = text
    if required := sorted(schema.get("required", [])):
        out["required"] = required
    if name in ATOMIC_MAPS:
        out["x-kubernetes-map-type"] = "atomic"
    return out


def _first_paragraph(schema: dict[str, Any]) -> str:
    """Return the description in one line, without the list of attributes in a model's docstring."""
    return " ".join(schema.get("description", "").split("\n\nAttributes:")[0].split())


def _field(path: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI schema of a field (DEFINITION.FIELD), with its merge rules and default."""
    out = _sized(path, _type(schema))
    if text := _first_paragraph(schema):
        out["description"] = text
    keys = LIST_MAPS.get(path)
    if out.get("type") == "array":
        out["x-kubernetes-list-type"] = "map" if keys else "set" if path in SETS else "atomic"
        if keys:
            out["x-kubernetes-list-map-keys"] = list(keys)
        if keys or path in MERGED_LISTS:
            out["x-kubernetes-patch-strategy"] = "merge"
            if key := MERGED_LISTS.get(path, keys[0] if keys else ""):
                out["x-kubernetes-patch-merge-key"] = key
    if path in RETAIN_KEYS:
        out["x-kubernetes-patch-strategy"] = RETAIN_KEYS[path]
    if path in ATOMIC_FIELDS:
        out["x-kubernetes-map-type"] = "atomic"
    if path in QUANTITY_MAPS:
        out["additionalProperties"] = {"format": "quantity", "x-kubernetes-int-or-string": True}
    if path in QUANTITIES:
        out.pop("type")
        out |= {"format": "quantity", "x-kubernetes-int-or-string": True}
    if path in KEY_DEFAULTS:
        out["default"] = KEY_DEFAULTS[path]
    return out


def _sized(path: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Set the format of an integer field, or of a list of integers; return the schema."""
    for number in (schema, schema.get("items", {})):
        if number.get("type") == "integer":
            number["format"] = "int64" if path in INT64 else "int32"
    return schema


def _type(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI type of pydantic's JSON schema of a field, without its description.

    An optional field is `anyOf` its type and null; the API has no null.
    """
    options = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
    types = [option.get("type") for option in options]
    if sorted(map(str, types)) == ["integer", "string"]:
        return {"x-kubernetes-int-or-string": True}
    if any(option.get("format") == "binary" for option in options):
        return {"type": "string", "format": "byte"}
    (option,) = options
    if "$ref" in option:
        return {"$ref": _name(option["$ref"].rsplit("/", 1)[1])}
    out: dict[str, Any] = {"type": option["type"]}
    if "format" in option:
        out["format"] = option["format"]
    if option["type"] == "array":
        out["items"] = _type(option["items"])
    if option.get("additionalProperties") is True:
        out["x-kubernetes-preserve-unknown-fields"] = True
    elif isinstance(option.get("additionalProperties"), dict):
        out["additionalProperties"] = _type(option["additionalProperties"])
    return out


def _reachable(definitions: dict[str, Any], roots: list[str]) -> set[str]:
    """Return the names of the definitions that the roots refer to, directly or not, and of the roots."""
    reachable: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name not in reachable:
            reachable.add(name)
            todo += _references(definitions[name])
    return reachable


def _references(node: Any) -> list[str]:
    """Return the names of the definitions that a part of a schema refers to (`$ref`)."""
    if isinstance(node, list):
        return [name for child in node for name in _references(child)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return own + [name for child in node.values() for name in _references(child)]


if __name__ == "__main__":
    TARGET.write_text(generate(), encoding="utf-8")
    sys.stdout.write(f"wrote {TARGET}\n")
