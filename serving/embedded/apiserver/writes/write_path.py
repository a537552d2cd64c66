"""The write path: computes the object to store from the stored object and a write request. Pure.

Arguments are never changed. A write without a change returns the old object. The store sets resourceVersion.
Every refusal is an `errors.ApiError` whose causes name field, rule and value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from serving.embedded.apiserver import object_meta, status_errors
from serving.embedded.apiserver.admission import by_kind as admission
from serving.embedded.apiserver.apply import managed_fields
from serving.embedded.apiserver.apply.managed_fields import Owner
from serving.embedded.apiserver.schema import cel_rules, defaults, pruning, schemas, validation
from serving.embedded.apiserver.schema.schemas import Schema
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.embedded.apiserver.writes import deletion, patches, scale
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind


@dataclass(frozen=True)
class WriteOptions:
    """Who writes, and how: the choices of a client beside the body."""

    manager: str
    """The field manager."""
    field_validation: str = "Strict"
    """`Strict`, `Warn` or `Ignore`: the consequence of unknown fields."""
    subresource: str | None = None
    """None, `status` or `scale`."""
    force: bool = False
    """Whether an apply takes over fields of other managers."""
    dry_run: bool = False


@dataclass(frozen=True)
class WriteRequest:
    """A write's options, its time, and randomness for a new object."""

    kinds: StoredKinds
    """Has the schema of the object's kind."""
    options: WriteOptions
    now: str
    """RFC 3339, whole seconds."""
    uid: str = ""
    """Of a new object; empty for other writes."""
    suffix: str = ""
    """Five random characters that complete the generateName of a new object."""


class WriteOutcome(NamedTuple):
    """The object to store, and the warnings to answer with."""

    object: Object
    warnings: tuple[str, ...]


def create(kind: Kind, namespace: str | None, body: Object, request: WriteRequest) -> WriteOutcome:
    """Return the new object."""
    sent = _read(kind, body, request)
    obj = sent.object
    obj["metadata"] = _new_metadata(kind, obj.get("metadata") or {}, namespace, request)
    if kind.status:
        obj.pop("status", None)
    schema = request.kinds.schema(kind)
    _complete(kind, obj, None, schema, valid=sent.valid)
    obj["metadata"].pop("managedFields", None)
    owner = _owner(kind, request, managed_fields.UPDATE)
    entries = managed_fields.created(obj, schema, owner, request.now)
    return WriteOutcome(_with_managed_fields(obj, entries), sent.warnings)


def update(kind: Kind, old: Object, body: Object, request: WriteRequest) -> WriteOutcome:
    """Return the object after a PUT; with a subresource, only the fields of the subresource are written."""
    if request.options.subresource == "scale":
        _check_scale(kind, old, body)
        body = scale.from_scale(old, body)
    sent = _read(kind, body, request, old)
    obj = sent.object
    obj["metadata"] = object_meta.updated(kind, old["metadata"], obj.get("metadata") or {})
    obj = _in_scope(kind, old, obj, request)
    schema = request.kinds.schema(kind)
    _complete(kind, obj, old, schema, valid=sent.valid)
    before = old["metadata"].get("managedFields") or []
    entries = obj["metadata"].get("managedFields", before)
    if entries != before:
        entries = managed_fields.well_formed(entries)
    owner = _owner(kind, request, managed_fields.UPDATE)
    entries = managed_fields.updated(entries, old, obj, schema, owner, now=request.now)
    return WriteOutcome(_old_if_equal(old, _with_managed_fields(obj, entries)), sent.warnings)


def patch(kind: Kind, old: Object, patch: Any, content_type: str, request: WriteRequest) -> WriteOutcome:
    """Return the object after a merge patch, JSON patch or strategic merge patch."""
    if request.options.subresource == "scale":
        patched = patches.patched(kind, scale.to_scale(kind, old), patch, content_type, scale.SCHEMA)
    else:
        patched = patches.patched(kind, old, patch, content_type, request.kinds.schema(kind))
    return update(kind, old, patched, request)


def apply(  # noqa: PLR0917 positional, as the other writes
    kind: Kind, old: Object | None, namespace: str | None, name: str, body: Object, request: WriteRequest
) -> WriteOutcome:
    """Return the object after a server-side apply, which creates it where `old` is None.

    Raises:
        errors.Conflict: other managers own fields that it would change, and `force` is not set.
    """
    if request.options.subresource == "scale":
        if old is not None:
            _check_scale(kind, old, body)
        body = _scale_configuration(kind, body)
    sent = _read(kind, body, request)
    config = sent.object
    meta = config.get("metadata") or {}
    if meta.get("managedFields"):
        raise status_errors.bad_request("metadata.managedFields must be nil")
    if meta.get("name", name) != name:
        raise status_errors.bad_request(
            f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        )
    broken = [] if sent.valid else validation.causes(config, request.kinds.schema(kind), "partial")
    if broken:
        raise status_errors.unprocessable(kind, name, broken)
    if old is None:
        return WriteOutcome(_applied_new(kind, namespace, name, config, request), sent.warnings)
    return WriteOutcome(_applied_over(kind, old, config, request), sent.warnings)


def delete(kind: Kind, old: Object, options: Mapping[str, Any], request: WriteRequest) -> Object | None:
    """Return the object to store until it may go, or None where it goes now."""
    return deletion.delete(kind, old, options, request.now)


def is_gone(kind: Kind, obj: Object) -> bool:
    """Whether the store removes the object after a write: deleted, without finalizers and grace period."""
    return deletion.is_finished(kind, obj)


def _applied_new(
    kind: Kind, namespace: str | None, name: str, config: Object, request: WriteRequest
) -> Object:
    if request.options.subresource:
        raise status_errors.not_found(kind, name)
    meta = {**(config.get("metadata") or {}), "name": name}
    if meta.get("uid"):
        why = (
            f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
        )
        raise status_errors.conflict(kind, name, why)
    obj = {**config, "metadata": _new_metadata(kind, meta, namespace, request)}
    if kind.status:
        obj.pop("status", None)
        config = {key: value for key, value in config.items() if key != "status"}
    schema = request.kinds.schema(kind)
    _complete(kind, obj, None, schema, valid=True)
    owner = _owner(kind, request, managed_fields.APPLY)
    return _with_managed_fields(obj, managed_fields.created(config, schema, owner, request.now))


def _applied_over(kind: Kind, old: Object, config: Object, request: WriteRequest) -> Object:
    # First the checks of `updated`: a stale resourceVersion or another uid is refused before other conflicts.
    object_meta.updated(kind, old["metadata"], config.get("metadata") or {})
    schema = request.kinds.schema(kind)
    live = {**old, "metadata": _without_managed_fields(old["metadata"])}
    obj, entries = managed_fields.applied(
        old["metadata"].get("managedFields") or [], live, _ownable(kind, config, request), schema,
        _owner(kind, request, managed_fields.APPLY), force=request.options.force, now=request.now,
    )  # fmt: skip
    obj["metadata"] = object_meta.updated(kind, old["metadata"], obj.get("metadata") or {})
    obj = _in_scope(kind, old, obj, request)
    _complete(kind, obj, old, schema, valid=False)
    return _old_if_equal(old, _with_managed_fields(obj, entries))


def _ownable(kind: Kind, config: Object, request: WriteRequest) -> Object:
    """Return the part of an apply configuration that the manager of this resource or subresource may own."""
    if request.options.subresource == "status":
        return {key: value for key, value in config.items() if key in ("apiVersion", "kind", "status")}
    owned = {key: value for key, value in config.items() if not (key == "status" and kind.status)}
    if "metadata" in owned:
        meta = owned["metadata"] or {}
        owned["metadata"] = {key: meta[key] for key in meta if key not in ("resourceVersion", "uid")}
    return owned


def _new_metadata(kind: Kind, meta: Object, namespace: str | None, request: WriteRequest) -> Object:
    return object_meta.created(kind, meta, namespace, uid=request.uid, now=request.now, suffix=request.suffix)


class _PrunedBody(NamedTuple):
    """A body without nulls and unknown fields; unchanged parts are those of the body that was sent."""

    object: Object
    warnings: tuple[str, ...]
    """About unknown fields."""
    valid: bool
    """Whether the body needed no pruning and has no wrong values; required members may be missing."""


def _read(kind: Kind, body: Any, request: WriteRequest, old: Object | None = None) -> _PrunedBody:
    """Prune a body, and check its kind, its metadata and (by `field_validation`) its unknown fields."""
    if not isinstance(body, dict):
        raise status_errors.bad_request("the body of the request must be a JSON object")
    for field, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if body.get(field, expected) != expected:
            raise status_errors.bad_request(
                f"the {field} in the data ({body[field]}) does not match the expected {field} ({expected})"
            )
    schema, header = request.kinds.schema(kind), {"apiVersion": kind.api_version, "kind": kind.kind}
    # A patched object shares the members that the patch did not touch with the old object, and the old object
    # was validated when it was written.
    new = {key: value for key, value in body.items() if value is not old.get(key)} if old else body
    violations = validation.check(new, schema, "sent")
    if not violations:
        return _PrunedBody({**body, **header}, (), valid=True)
    obj = pruning.prune(body, schema)
    meta = obj.get("metadata", {})
    broken = validation.causes({"metadata": meta}, schema, "partial")
    if broken:
        name = str(meta.get("name", "")) if isinstance(meta, dict) else ""
        raise status_errors.unprocessable(kind, name, broken)
    unknown = validation.unknown_fields(violations)
    texts = tuple(f'unknown field "{cause.field}"' for cause in unknown)
    if unknown and request.options.field_validation == "Strict":
        raise status_errors.bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"strict decoding error: {', '.join(texts)}",
            unknown,
        )
    warnings = texts if request.options.field_validation == "Warn" else ()
    return _PrunedBody({**obj, **header}, warnings, valid=False)


def _in_scope(kind: Kind, old: Object, obj: Object, request: WriteRequest) -> Object:
    """Return the new object with the old values of the fields that this request may not write.

    A status write changes the status only, another write everything else.
    """
    if request.options.subresource == "status":
        meta = dict(old["metadata"])
        if "managedFields" in obj["metadata"]:
            meta["managedFields"] = obj["metadata"]["managedFields"]
        status_source, obj = obj, {**old, "metadata": meta}
    elif kind == kinds.NAMESPACE and "status" not in old:
        return obj  # a namespace without a status takes that of the request
    elif kind.status:
        status_source = old
    else:
        return obj
    out = {key: value for key, value in obj.items() if key != "status"}
    return {**out, "status": status_source["status"]} if "status" in status_source else out


def _complete(kind: Kind, obj: Object, old: Object | None, schema: Schema, *, valid: bool) -> None:
    """Fill in defaults, check every rule and increment the generation.

    Sets members of `obj`; the members themselves may be shared with the old object, and are not changed. An
    unchanged member has its defaults and was checked when it was written: only transition rules apply again.

    Args:
        kind: of the object.
        obj: the object after the write.
        old: the object before it, or None.
        schema: of the kind.
        valid: its values are known to be valid, though required members may be missing.

    Raises:
        errors.Invalid: names every broken rule.
    """
    unchanged = _unchanged(obj, old)
    # No rule of a kind (`admission`) concerns the status.
    changed = (obj.keys() | (old or {}).keys()) - unchanged - {"status"}
    runs_admission = bool(changed - admission.ignored_parts(kind))
    # First the types of the values, as the kind's defaults read them. Defaults may add required members, so
    # those are checked after the defaults only ("partial").
    broken = validation.causes(obj, schema, "partial", unchanged=unchanged) if changed and not valid else []
    if not broken:
        before_defaults = dict(obj)
        obj |= defaults.fill(obj, schema, unchanged=unchanged)
        if runs_admission and admission.has_defaults(kind):
            obj |= {key: schemas.clone(value) for key, value in obj.items()}  # `defaults` works in place
            admission.defaults(kind, obj)
        broken = validation.causes(obj, schema, unchanged=unchanged)
        if broken and changed:  # messages show values as they were sent, where these are at fault
            broken = validation.causes(before_defaults, schema, "partial", unchanged=unchanged) or broken
    fits_schema, meta = not broken, obj["metadata"]
    if "metadata" not in unchanged:
        broken = [*object_meta.check(kind, meta, old["metadata"] if old else None), *broken]
    if fits_schema:
        broken += cel_rules.check(obj, old, schema)
        broken += admission.check(kind, obj, old) if runs_admission else ()
    if broken:
        raise status_errors.unprocessable(kind, meta.get("name") or meta.get("generateName", ""), broken)
    if old is not None and object_meta.has_generation(kind) and _is_desired_changed(obj, old):
        meta["generation"] = int(meta.get("generation") or 0) + 1


def _unchanged(obj: Object, old: Object | None) -> frozenset[str]:
    """Return the top-level members that are exactly as they were; managedFields do not count."""
    if old is None:
        return frozenset()
    same = {key for key, value in obj.items() if key in old and _is_same_json(old[key], value)}
    if _is_same_json(_without_managed_fields(old["metadata"]), _without_managed_fields(obj["metadata"])):
        same.add("metadata")
    return frozenset(same)


def _is_same_json(old: Any, new: Any) -> bool:
    """Whether two values are the same JSON: to Python `True == 1 == 1.0`, of which only one may be valid."""
    return old is new or (old == new and _sorted_json(old) == _sorted_json(new))


def _sorted_json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _is_desired_changed(obj: Object, old: Object) -> bool:
    """Whether the part of an object has changed whose changes the generation counts."""
    members = (obj.keys() | old.keys()) - {"metadata", "status"}
    return any(not _is_same_json(old.get(member), obj.get(member)) for member in members)


def _owner(kind: Kind, request: WriteRequest, operation: str) -> Owner:
    options = request.options
    return Owner(operation, options.manager, options.subresource or "", kind.api_version)


def _without_managed_fields(meta: Object) -> Object:
    return {key: value for key, value in meta.items() if key != "managedFields"}


def _with_managed_fields(obj: Object, entries: list[Object]) -> Object:
    meta = _without_managed_fields(obj["metadata"])
    return {**obj, "metadata": {**meta, **({"managedFields": entries} if entries else {})}}


def _old_if_equal(old: Object, new: Object) -> Object:
    return old if _is_same_json(old, new) else new


def _check_scale(kind: Kind, old: Object, body: Object) -> None:
    if not isinstance(body, dict):
        raise status_errors.bad_request("the body of the request must be a JSON object")
    broken = validation.causes(body, scale.SCHEMA)
    if broken:
        raise status_errors.unprocessable(kind, old["metadata"]["name"], broken)


def _scale_configuration(kind: Kind, body: Object) -> Object:
    """Return the apply configuration of the object for one of its Scale."""
    meta = scale.checked_metadata(body)
    spec = {"spec": {"replicas": body["spec"]["replicas"]}} if "replicas" in (body.get("spec") or {}) else {}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **spec}
