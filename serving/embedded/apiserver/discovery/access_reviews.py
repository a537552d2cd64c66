"""Answers of `kubectl auth can-i` and `auth whoami`: there is one user, who may do all that is served. Pure.

Types: k8s.io/api/{authorization,authentication}/v1/types.go.
"""

from collections.abc import Sequence

from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.discovery import api_groups, empty_kinds, not_offered
from serving.embedded.apiserver.schema import pruning, validation
from serving.embedded.apiserver.schema.schemas import Schema
from serving.objects import Object
from serving.resources.kinds import Kind

USER = "slipway"
"""The user of the kubeconfig."""
GROUPS = ["system:masters", "system:authenticated"]
"""Two groups of a cluster: the users who may do everything, and all users who are known."""

_TEXT: Schema = {"type": "string"}
_RESOURCE: Schema = {
    "type": "object",
    "properties": dict.fromkeys(
        ("namespace", "verb", "group", "version", "resource", "subresource", "name"), _TEXT
    ),
}
_PATH: Schema = {"type": "object", "properties": {"path": _TEXT, "verb": _TEXT}}
_SPECS: dict[Kind, Schema] = {
    api_groups.SELF_SUBJECT_ACCESS_REVIEW: {
        "type": "object",
        "properties": {"resourceAttributes": _RESOURCE, "nonResourceAttributes": _PATH},
    },
    api_groups.SELF_SUBJECT_RULES_REVIEW: {"type": "object", "properties": {"namespace": _TEXT}},
    api_groups.SELF_SUBJECT_REVIEW: {"type": "object"},
}


def answer(served: Sequence[Kind], kind: Kind, body: Object) -> Object:
    """Return the review with its status; `served` are the served kinds.

    Raises:
        errors.Invalid: a field has a wrong type, or an access review has not exactly one kind of attributes.
    """
    schema: Schema = {"type": "object", "properties": {"spec": _SPECS[kind]}}
    known: Object = pruning.prune(body, schema)
    causes = validation.causes(known, schema)
    spec: Object = {} if causes else known.get("spec") or {}
    asked = [name for name in ("resourceAttributes", "nonResourceAttributes") if spec.get(name)]
    if not causes and kind is api_groups.SELF_SUBJECT_ACCESS_REVIEW and len(asked) != 1:
        rule = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        causes = [status_errors.invalid("spec.resourceAttributes", spec.get("resourceAttributes"), rule)]
    if causes:
        raise status_errors.unprocessable(kind, "", causes)
    review: Object = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {}}
    if kind is api_groups.SELF_SUBJECT_REVIEW:
        return {**review, "status": {"userInfo": {"username": USER, "groups": GROUPS}}}
    if kind is api_groups.SELF_SUBJECT_RULES_REVIEW:
        return {**review, "spec": spec, "status": _rules(served)}
    return {**review, "spec": spec, "status": _access(served, spec.get("resourceAttributes") or {})}


def _access(served: Sequence[Kind], asked: Object) -> Object:
    """Return whether a request is allowed: whether its resource, subresource and verb are served.

    `asked` are the resource attributes; they are empty for a path that is no resource, which is allowed even
    if its response would be a 404.
    """
    group, plural, verb = (asked.get(name, "") for name in ("group", "resource", "verb"))
    subresource = asked.get("subresource", "")
    if not asked or "*" in (group, plural):
        return {"allowed": True, "reason": "the holder of the token may do everything"}
    kind = next((k for k in served if (k.group, k.plural) == (group, plural)), None)
    if kind is None:
        name = f"{plural}.{group}" if group else plural
        return _denied(not_offered.RESOURCES.get((group, plural)) or f"the server has no resource {name}")
    if subresource and subresource not in (*api_groups.subresources(kind), "*"):
        text = not_offered.of_subresource(kind, subresource)
        return _denied(text or f"{plural} have no subresource {subresource}")
    if verb not in (*_verbs(kind, subresource), "*"):
        instead = f": {empty_kinds.INSTEAD[kind]}" if kind in empty_kinds.INSTEAD else ""
        return _denied(f"the verb {verb} is not offered for {plural}{instead}")
    return {"allowed": True, "reason": "the holder of the token may do everything"}


def _denied(reason: str) -> Object:
    return {"allowed": False, "reason": reason}


def _verbs(kind: Kind, subresource: str) -> list[str]:
    if subresource in ("", "*"):
        return api_groups.verbs(kind)
    return api_groups.subresource_verbs(subresource)


def _rules(served: Sequence[Kind]) -> Object:
    """Return one rule for each resource and subresource that is served."""
    rules = [
        {
            "verbs": _verbs(kind, name),
            "apiGroups": [kind.group],
            "resources": [f"{kind.plural}/{name}".strip("/")],
        }
        for kind in served
        for name in ("", *api_groups.subresources(kind))
    ]
    paths = {"verbs": ["get"], "nonResourceURLs": ["*"]}
    return {"resourceRules": rules, "nonResourceRules": [paths], "incomplete": False}
