"""Edits by other field managers of a revision's Pod template, whose hash is in the revision's name.

The API server's defaults and the fields of mutating webhooks belong to no other manager in
`metadata.managedFields`, so they are no edits.
https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from serving.objects import Object
from serving.planning.inference.comparison.canonical_template import canonical
from serving.planning.inference.comparison.drift import template_covers
from serving.planning.inference.observed import ObservedObjects
from serving.planning.inference.plan import Ensure, PutBackTemplate
from serving.resources import kinds

RESTART_ANNOTATION = "kubectl.kubernetes.io/restartedAt"
"""`kubectl rollout restart` writes it into the template; it changes nothing but the age of the Pods."""
_RESTART_PATH = f"metadata.annotations.{RESTART_ANNOTATION}"
_ITSELF = "."
"""Element of `fieldsV1` by which a manager owns a map or an item itself, beside fields of it."""
_ABSENT = object()
"""Value of a field that a template does not have."""


def put_back(observed: ObservedObjects, ensure: Ensure) -> PutBackTemplate | None:
    """Return the action that puts a Deployment's template back.

    None for other objects and new Deployments, and if the template has no edits or must not be put back now.
    """
    meta = ensure.object["metadata"]
    deployment = observed.deployments.get(meta["name"])
    if ensure.kind is not kinds.DEPLOYMENT or deployment is None or meta["name"] in observed.put_back_blocked:
        return None
    template, stored = ensure.object["spec"]["template"], deployment["spec"]["template"]
    edits = edits_by_others(deployment, template, observed.field_manager)
    if not edits and template_covers(stored, template):
        return None
    return PutBackTemplate(meta["name"], _with_restart(template, stored), edits)


def edits_by_others(deployment: Object, template: Object, manager: str) -> dict[str, tuple[str, ...]]:
    """Return field manager → paths of its fields in the stored template that differ from `template`.

    Args:
        deployment: the stored Deployment.
        template: the rendered template.
        manager: the controller's own field manager, whose fields are no edits.
    """
    stored, desired = canonical(deployment["spec"]["template"]), canonical(template)
    edits: dict[str, tuple[str, ...]] = {}
    for entry in deployment["metadata"].get("managedFields") or []:
        owned = ((entry.get("fieldsV1") or {}).get("f:spec") or {}).get("f:template")
        name = str(entry.get("manager", ""))
        if owned and name != manager:
            paths = [path for path in _edits(owned, stored, desired, "") if path != _RESTART_PATH]
            edits[name] = (*edits.get(name, ()), *paths)
    return {name: paths for name, paths in edits.items() if paths}


def describe(edits: Mapping[str, tuple[str, ...]]) -> str:
    """Return the edits as a part of a sentence, with the manager that wrote each."""
    if not edits:
        return "fields had been removed"
    return "; ".join(f"{manager} had written {', '.join(paths)}" for manager, paths in edits.items())


def _edits(owned: Mapping[str, Any], stored: Any, desired: Any, path: str) -> Iterator[str]:
    """Yield the paths of owned fields whose stored value is not the desired one.

    Args:
        owned: a tree of `fieldsV1`; its keys are the path elements that `_member` reads.
        stored: the stored template, or the part of it at `path`.
        desired: the same part of the rendered template.
        path: the path from the template to that part, as in messages.
    """
    if stored is _ABSENT or stored is None:  # no value is written; `template_covers` notices a missing one
        return
    below = {element: tree for element, tree in owned.items() if element != _ITSELF}
    is_leaf = not below
    is_added_whole = desired is _ABSENT and _ITSELF in owned
    if is_leaf or is_added_whole:
        if stored != desired:
            yield path
        return
    for element, tree in below.items():
        yield from _edits(tree, _member(stored, element), _member(desired, element), _joined(path, element))


def _member(value: Any, element: str) -> Any:
    """Return the part of a value at an element of a `fieldsV1` path; `_ABSENT` if there is none.

    An element is `f:FIELD` of a map, `v:JSON` (the item of a list with this value) or `k:JSON` (the item with
    these keys).
    """
    element_type, content = element[:2], element[2:]
    if element_type == "f:":
        return value.get(content, _ABSENT) if isinstance(value, dict) else _ABSENT
    items = value if isinstance(value, list) else []
    if element_type == "v:":
        return next((item for item in items if item == json.loads(content)), _ABSENT)
    if element_type != "k:":
        return _ABSENT
    keys = json.loads(content)
    # Items of any type, as a client may write any managedFields. A rendered item may lack a key that has a
    # default, such as the protocol of a port.
    maps = (item for item in items if isinstance(item, dict))
    return next((item for item in maps if all(item.get(k, v) == v for k, v in keys.items())), _ABSENT)


def _joined(path: str, element: str) -> str:
    """Append an element to a path: `spec.containers[name=predictor].image`."""
    element_type, content = element[:2], element[2:]
    if element_type == "f:":
        return f"{path}.{content}" if path else content
    if element_type == "k:":
        content = ",".join(f"{key}={value}" for key, value in json.loads(content).items())
    return f"{path}[{content}]"


def _with_restart(template: Object, stored: Object) -> Object:
    """Return the rendered template with the time of the last restart that a user asked for."""
    restarted = ((stored.get("metadata") or {}).get("annotations") or {}).get(RESTART_ANNOTATION)
    if restarted is None:
        return template
    meta = template["metadata"]
    annotations = {**(meta.get("annotations") or {}), RESTART_ANNOTATION: restarted}
    return {**template, "metadata": {**meta, "annotations": annotations}}
