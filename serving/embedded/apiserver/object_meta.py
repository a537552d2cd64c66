"""ObjectMeta: the syntax of names, labels and annotations, and the fields that the server alone writes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from serving.embedded.apiserver import status_errors
from serving.errors import Cause
from serving.resources import kinds
from serving.resources.kinds import Kind
from serving.resources.names import MAX_SUBDOMAIN, SUBDOMAIN_PATTERN

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(SUBDOMAIN_PATTERN)
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
SERVICE_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
MAX_LABEL = 63
MAX_ANNOTATIONS = 256 * 1024
"""Bytes of all annotations together: k8s.io/apimachinery/pkg/api/validation/objectmeta.go."""
GENERATED_LENGTH = 58
"""Characters of a generateName that are used, as in Kubernetes: with five random ones they are a label."""

_UNSET = (None, "")
"""Values of a namespace or uid in a body that count as none, as in kube-apiserver."""
_BUILTINS_WITH_GENERATION = frozenset({kinds.DEPLOYMENT, kinds.JOB, kinds.POD, kinds.ENDPOINT_SLICE})
_KINDS_WITHOUT_GENERATION = frozenset(kinds.BUILTIN) - _BUILTINS_WITH_GENERATION
_KINDS_WITH_UNCONDITIONAL_UPDATE = frozenset(kinds.BUILTIN) - {kinds.LEASE}
"""Kinds whose updates need no resourceVersion (Kubernetes: AllowUnconditionalUpdate); no custom one."""
_SERVER_FIELDS = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
    "name",
    "namespace",
)
"""Fields that no body of an update changes: the server sets them, or they are the object's key."""


def created(
    kind: Kind, meta: dict[str, Any], namespace: str | None, *, uid: str, now: str, suffix: str
) -> dict[str, Any]:
    """Return the metadata of a new object.

    Args:
        kind: the object's kind.
        meta: the metadata in the body.
        namespace: the request's namespace; None where the path has none.
        uid: the new object's uid.
        now: the time of its creation, in RFC 3339.
        suffix: the random characters behind a `generateName`.

    Raises:
        errors.ApiError: 400 for a namespace other than the request's, or for a resourceVersion.
    """
    if meta.get("resourceVersion"):
        raise status_errors.bad_request("resourceVersion should not be set on objects to be created")
    if kind.namespaced and namespace and meta.get("namespace") not in (*_UNSET, namespace):
        raise status_errors.bad_request(
            f"the namespace of the provided object ({meta['namespace']}) does not match the namespace sent "
            f"on the request ({namespace})"
        )
    new = _without_server_fields(meta)
    name = meta.get("name")
    if not name and meta.get("generateName"):
        name = meta["generateName"][:GENERATED_LENGTH] + suffix
    if name:
        new["name"] = name
    if kind.namespaced and namespace:
        new["namespace"] = namespace
    new |= {"uid": uid, "creationTimestamp": now}
    if has_generation(kind):
        new["generation"] = 1
    return new


def has_generation(kind: Kind) -> bool:
    """Whether objects have a generation, which counts the changes of the desired state; custom ones have."""
    return kind not in _KINDS_WITHOUT_GENERATION


def requires_version(kind: Kind) -> bool:
    """Whether an update must have a resourceVersion."""
    return kind not in _KINDS_WITH_UNCONDITIONAL_UPDATE


def updated(kind: Kind, old: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's metadata after an update: `meta` of the body, with the server's fields of `old`.

    Raises:
        errors.Conflict: the body's resourceVersion or uid is not the stored one.
        errors.ApiError: 400 for another name or namespace.
    """
    version = meta.get("resourceVersion")
    if version and version != old.get("resourceVersion"):
        raise status_errors.conflict(kind, old["name"], status_errors.STALE)
    if meta.get("uid") not in (*_UNSET, old.get("uid")):
        reason = (
            f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old.get('uid')}"
        )
        raise status_errors.conflict(kind, old["name"], reason)
    for field, unset in (("name", (None,)), ("namespace", _UNSET)):
        if meta.get(field) not in (*unset, old.get(field)):
            raise status_errors.bad_request(
                f"the {field} of the object ({meta[field]}) does not match the {field} on the URL "
                f"({old.get(field)})"
            )
    return _without_server_fields(meta) | {field: old[field] for field in _SERVER_FIELDS if field in old}


def _without_server_fields(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if key not in (*_SERVER_FIELDS, "selfLink")}


def check(kind: Kind, meta: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[Cause]:
    """Yield the broken rules of an object's metadata; `old` is the stored metadata, None on create."""
    if old is None:
        yield from _name(kind, meta)
    yield from labels(meta.get("labels") or {}, "metadata.labels")
    yield from _annotations(meta.get("annotations") or {})
    for index, finalizer in enumerate(meta.get("finalizers") or ()):
        if not _is_key(finalizer):
            yield status_errors.invalid(f"metadata.finalizers[{index}]", finalizer, KEY_RULE)
    if old is not None and "deletionTimestamp" in old:
        added = sorted(set(meta.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if added:
            rule = (
                f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
            )
            yield status_errors.forbidden("metadata.finalizers", rule)
    controllers = [ref for ref in meta.get("ownerReferences") or () if ref.get("controller")]
    if len(controllers) > 1:
        yield status_errors.invalid(
            "metadata.ownerReferences",
            [ref.get("name") for ref in controllers],
            "Only one reference can have Controller set to true",
        )


def _name(kind: Kind, meta: Mapping[str, Any]) -> Iterator[Cause]:
    name = meta.get("name")
    if not name:
        yield status_errors.required("metadata.name", "name or generateName is required")
        return
    if kind == kinds.NAMESPACE:
        form, limit, rule = _LABEL, MAX_LABEL, LABEL_RULE
    elif kind == kinds.SERVICE:
        form, limit, rule = _SERVICE, MAX_LABEL, SERVICE_RULE
    else:
        form, limit, rule = _SUBDOMAIN, MAX_SUBDOMAIN, SUBDOMAIN_RULE
    if len(name) > limit:
        yield status_errors.invalid("metadata.name", name, f"must be no more than {limit} bytes")
    if not form.fullmatch(name):
        yield status_errors.invalid("metadata.name", name, rule)


def labels(values: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Yield the broken rules of a map of labels."""
    for key, value in values.items():
        if not _is_key(key):
            yield status_errors.invalid(path, key, KEY_RULE)
        if not isinstance(value, str):
            continue  # reported by the validation of the schema
        if len(value) > MAX_LABEL:
            yield status_errors.invalid(path, value, f"must be no more than {MAX_LABEL} bytes")
        elif value and not _QUALIFIED.fullmatch(value):
            yield status_errors.invalid(path, value, VALUE_RULE)


def _annotations(values: Mapping[str, Any]) -> Iterator[Cause]:
    for key in values:
        if not _is_key(key.lower()):  # as kube-apiserver: the prefix of an annotation may have capitals
            yield status_errors.invalid("metadata.annotations", key, KEY_RULE)
    size = sum(len(key.encode()) + len(str(value).encode()) for key, value in values.items())
    if size > MAX_ANNOTATIONS:
        yield status_errors.too_long("metadata.annotations", MAX_ANNOTATIONS)


def _is_key(key: Any) -> bool:
    """Whether the key is a qualified name: `NAME`, or `PREFIX/NAME` where the prefix is a subdomain."""
    if not isinstance(key, str):
        return False
    prefix, _, name = key.rpartition("/")
    if "/" in key and not (len(prefix) <= MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return 0 < len(name) <= MAX_LABEL and _QUALIFIED.fullmatch(name) is not None
