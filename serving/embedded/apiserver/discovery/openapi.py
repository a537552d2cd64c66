"""OpenAPI v3: the index, and one document per group version, for `kubectl explain`, `apply` and `--validate`.

kubectl finds a kind's schema by `x-kubernetes-group-version-kind`, and support for `fieldValidation` by the
parameters of PATCH.
"""

import hashlib
import json
from functools import cache
from typing import Any

from serving.embedded.apiserver.discovery import empty_kinds
from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.objects import Object
from serving.resources import definitions, kinds
from serving.resources.definitions import Definition
from serving.resources.kinds import Kind
from serving.resources.kubernetes import patch_types

_BUILTIN_PREFIX = "io.k8s.api."
"""Prefix of the schema names of built-in definitions, such as `io.k8s.api.PodSpec`."""
_LIST_META = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("continue", "resourceVersion")},
}
_WRITE_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]
_FORCE = {"name": "force", "in": "query", "schema": {"type": "boolean", "uniqueItems": True}}


def index(stored_kinds: StoredKinds) -> Object:
    """Return `/openapi/v3`. An entry's URL changes with its document, so that clients can cache it."""
    paths = {}
    for name in group_versions(stored_kinds):
        text = json.dumps(document(stored_kinds, name), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest().upper()
        paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
    return {"paths": paths}


def group_versions(stored_kinds: StoredKinds) -> list[str]:
    """Return the documents' names, such as `api/v1` and `apis/apps/v1`."""
    return list(dict.fromkeys(kind.prefix.removeprefix("/") for kind in _described(stored_kinds)))


def _described(stored_kinds: StoredKinds) -> tuple[Kind, ...]:
    """Return the stored kinds, and the empty ones too.

    A manifest of a kind without a schema here would be validated by kubectl with OpenAPI v2, which is not
    served.
    """
    return (*stored_kinds.all, *empty_kinds.KINDS)


def document(stored_kinds: StoredKinds, group_version: str) -> Object | None:
    """Return the document of a group version such as `apis/apps/v1`, or None for an unknown one.

    Callers must not change the document, which is cached.
    """
    return _document(stored_kinds, group_version) if group_version in group_versions(stored_kinds) else None


@cache
def _document(stored_kinds: StoredKinds, group_version: str) -> Object:
    served = [kind for kind in _described(stored_kinds) if kind.prefix == f"/{group_version}"]
    components: Object = {}
    for kind in served:
        _add_kind(kind, stored_kinds.definitions.get(kind), components)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Slipway", "version": kinds.VERSION},
        "paths": {path: item for kind in served for path, item in _paths(kind).items()},
        "components": {"schemas": components},
    }


def component(kind: Kind) -> str:
    """Return the name of a kind's schema below `#/components/schemas`."""
    if kind in kinds.BUILTIN or kind in empty_kinds.INSTEAD:
        # An empty kind has no definition.
        return _BUILTIN_PREFIX + str(schemas.builtin()["kinds"].get(kind.kind, kind.kind))
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))


def _add_kind(kind: Kind, definition: Definition | None, components: Object) -> None:
    """Add the schemas of a kind, of its list, and of all built-in definitions that they refer to.

    `definition` is that of a custom kind, None for another.
    """
    if definition is not None:
        custom = definitions.schema(definition)
        schema: Object = {
            **custom,
            "properties": {**custom["properties"], "metadata": _reference("ObjectMeta")},
        }
        _add_builtin("ObjectMeta", components)
    elif kind in empty_kinds.INSTEAD:
        text = f"{kind.kind} is not offered: {empty_kinds.INSTEAD[kind]}."
        schema = {"type": "object", "description": text, **schemas.ANY}
    else:
        _add_builtin(schemas.builtin()["kinds"][kind.kind], components)
        schema = components[component(kind)]
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    components[component(kind)] = {**schema, "x-kubernetes-group-version-kind": [gvk]}
    components[f"{component(kind)}List"] = {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": _LIST_META,
            "items": {"type": "array", "items": {"$ref": f"#/components/schemas/{component(kind)}"}},
        },
        "x-kubernetes-group-version-kind": [{**gvk, "kind": f"{kind.kind}List"}],
    }


def _add_builtin(name: str, components: Object) -> None:
    """Add a built-in definition, and all definitions that it refers to."""
    key = _BUILTIN_PREFIX + name
    if key in components:
        return
    components[key] = {}  # so that a definition that refers to itself is added once
    components[key] = _published(schemas.builtin()["definitions"][name], components)


def _published(node: Any, components: Object) -> Any:
    """Return a definition whose references point into this document, and add their targets to it."""
    if isinstance(node, list):
        return [_published(child, components) for child in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        _add_builtin(node["$ref"], components)
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        return {**siblings, **_reference(node["$ref"])}
    published = {key: _published(value, components) for key, value in node.items()}
    if node.get("x-kubernetes-int-or-string") is True:
        published["oneOf"] = [{"type": "integer"}, {"type": "string"}]  # OpenAPI has no such type
    return published


def _reference(name: str) -> Object:
    """Return a reference to a built-in definition; in OpenAPI v3.0 a bare `$ref` hides its siblings."""
    return {"allOf": [{"$ref": f"#/components/schemas/{_BUILTIN_PREFIX}{name}"}]}


def _paths(kind: Kind) -> Object:
    """Return the path items of a kind: collections with and without a namespace, and one object."""
    namespace = "{namespace}" if kind.namespaced else None
    collection = {
        "get": _operation(kind, "list", f"{component(kind)}List"),
        "post": _operation(kind, "post", component(kind), body=("application/json",)),
    }
    is_custom = kind not in kinds.BUILTIN and kind not in empty_kinds.INSTEAD
    patches = patch_types.PATCHES_OF_CUSTOM_KINDS if is_custom else patch_types.PATCHES
    item = {
        "get": _operation(kind, "get", component(kind)),
        "put": _operation(kind, "put", component(kind), body=("application/json",)),
        "patch": _operation(kind, "patch", component(kind), body=patches),
        "delete": _operation(kind, "delete", component(kind)),
    }
    all_namespaces = {kind.path(): {"get": collection["get"]}} if kind.namespaced else {}
    return {
        **all_namespaces,
        kind.path(namespace): {**collection, "parameters": _path_parameters(kind, named=False)},
        kind.path(namespace, "{name}"): {**item, "parameters": _path_parameters(kind, named=True)},
    }


def _path_parameters(kind: Kind, *, named: bool) -> list[Object]:
    names = (["namespace"] if kind.namespaced else []) + (["name"] if named else [])
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _operation(kind: Kind, action: str, response: str, *, body: tuple[str, ...] = ()) -> Object:
    """Return an operation.

    Args:
        kind: the kind.
        action: of `x-kubernetes-action`, such as `list`.
        response: the name of the response's schema.
        body: the media types of the request's body; empty for an operation without one.
    """
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{response}"}}}
    operation: Object = {
        "operationId": f"{action}{kind.kind}{'' if kind.group else 'Core'}",
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "responses": {"200": {"description": "OK", "content": content}},
    }
    if body:
        force = [_FORCE] if action == "patch" else []
        operation["parameters"] = [*_WRITE_PARAMETERS, *force]
        body_schema = (
            {"$ref": f"#/components/schemas/{component(kind)}"} if action != "patch" else {"type": "object"}
        )
        operation["requestBody"] = {
            "required": True,
            "content": {media: {"schema": body_schema} for media in body},
        }
    return operation
