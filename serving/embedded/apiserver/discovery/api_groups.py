"""Discovery documents: groups, versions and resources, in the legacy form and the aggregated one.

The functions of documents take the served kinds, which `served_kinds` returns.
"""

from collections.abc import Sequence

from serving.embedded.apiserver.discovery import empty_kinds
from serving.embedded.apiserver.nodes import node_object
from serving.embedded.apiserver.pods import pod_metrics
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind


def _review(group: str, name: str) -> Kind:
    return Kind(group, "v1", name, f"{name.lower()}s", namespaced=False, status=False)


SELF_SUBJECT_ACCESS_REVIEW = _review("authorization.k8s.io", "SelfSubjectAccessReview")
SELF_SUBJECT_RULES_REVIEW = _review("authorization.k8s.io", "SelfSubjectRulesReview")
SELF_SUBJECT_REVIEW = _review("authentication.k8s.io", "SelfSubjectReview")
REVIEWS = (SELF_SUBJECT_ACCESS_REVIEW, SELF_SUBJECT_RULES_REVIEW, SELF_SUBJECT_REVIEW)
"""Kinds that are answered and not stored."""

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
NAMESPACE_VERBS = [verb for verb in VERBS if verb != "deletecollection"]
"""Without deletecollection, as on a cluster: one request must not delete everything."""
_FEWER_VERBS: dict[Kind, list[str]] = {
    kinds.NAMESPACE: NAMESPACE_VERBS,
    kinds.NODE: node_object.VERBS,
    pod_metrics.KIND: pod_metrics.VERBS,
    **{kind: ["create"] for kind in REVIEWS},
    **dict.fromkeys(empty_kinds.KINDS, empty_kinds.VERBS),
}
_SUBRESOURCE_VERBS = ["get", "patch", "update"]


def served_kinds(stored_kinds: StoredKinds) -> tuple[Kind, ...]:
    """Return the kinds with an answer: the stored ones, and those of which no object is stored."""
    return (*stored_kinds.all, kinds.NODE, pod_metrics.KIND, *REVIEWS, *empty_kinds.KINDS)


def legacy_versions() -> Object:
    """Return `/api`."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
    }


def groups(served: Sequence[Kind]) -> Object:
    """Return `/apis`."""
    named = [_group(served, name) for name in group_names(served)]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}


def group_names(served: Sequence[Kind]) -> list[str]:
    """Return the named groups in the order of their kinds; the core group has no name."""
    return list(dict.fromkeys(kind.group for kind in served if kind.group))


def group(served: Sequence[Kind], name: str) -> Object | None:
    """Return `/apis/NAME`, or None for an unknown group."""
    if name not in group_names(served):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(served, name)}


def _group(served: Sequence[Kind], name: str) -> Object:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version} for version in _versions(served, name)
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _versions(served: Sequence[Kind], name: str) -> list[str]:
    return list(dict.fromkeys(kind.version for kind in served if kind.group == name))


def _kinds_of(served: Sequence[Kind], name: str, version: str) -> list[Kind]:
    return [kind for kind in served if kind.group == name and kind.version == version]


def resources(served: Sequence[Kind], group: str, version: str) -> Object | None:
    """Return `/api/v1` or `/apis/GROUP/VERSION`, or None for an unknown version."""
    listed = _kinds_of(served, group, version)
    if not listed:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": listed[0].api_version,
        "resources": [entry for kind in listed for entry in _legacy_entries(kind)],
    }


def _legacy_entries(kind: Kind) -> list[Object]:
    resource: Object = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs(kind),
    }
    if kind.short:
        resource["shortNames"] = list(kind.short)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    return [resource, *(_legacy_subresource(kind, name) for name in subresources(kind))]


def verbs(kind: Kind) -> list[str]:
    """Return the verbs of a kind's objects, without those of its subresources."""
    return _FEWER_VERBS.get(kind, VERBS)


def subresources(kind: Kind) -> list[str]:
    """Return the names of this kind's subresources."""
    candidates = [("status", kind.status), ("scale", kind.scale), ("log", kind == kinds.POD)]
    return [name for name, present in candidates if present]


def subresource_verbs(name: str) -> list[str]:
    """Return the verbs of a subresource."""
    return ["get"] if name == "log" else _SUBRESOURCE_VERBS


def _legacy_subresource(kind: Kind, name: str) -> Object:
    entry: Object = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": subresource_verbs(name),
    }
    if name == "scale":
        entry |= {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    return entry


def aggregated(
    served: Sequence[Kind],
    core: bool,  # noqa: FBT001 there are two documents, `/api` and `/apis`
) -> Object:
    """Return the aggregated document (apidiscovery.k8s.io/v2) of the core group or of the named groups."""
    names = [""] if core else group_names(served)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_aggregated_group(served, name) for name in names],
    }


def _aggregated_group(served: Sequence[Kind], name: str) -> Object:
    versions = [
        {
            "version": version,
            "freshness": "Current",
            "resources": [_aggregated_resource(kind) for kind in _kinds_of(served, name, version)],
        }
        for version in _versions(served, name)
    ]
    return {"metadata": {"name": name} if name else {}, "versions": versions}


def _aggregated_resource(kind: Kind) -> Object:
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    entry: Object = {
        "resource": kind.plural,
        "responseKind": gvk,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": verbs(kind),
    }
    if kind.short:
        entry["shortNames"] = list(kind.short)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    entries = [
        {
            "subresource": name,
            "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}
            if name == "scale"
            else gvk,
            "verbs": subresource_verbs(name),
        }
        for name in subresources(kind)
    ]
    return {**entry, "subresources": entries} if entries else entry
