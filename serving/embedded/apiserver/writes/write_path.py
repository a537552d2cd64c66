"""The door: what a write makes of what is stored. Takes JSON objects and the request, returns what to store.

Nothing that was passed in is changed. A write that changes nothing returns an object equal to the old one.
resourceVersion belongs to the store. Every refusal is an `errors.ApiError` whose causes name field, rule and value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.admission import by_kind as admission
from serving.embedded.apiserver.apply import claims, managed_fields
from serving.embedded.apiserver.apply.managed_fields import Owner
from serving.embedded.apiserver.schema import cel_rules, conforming, pruning, schemas, validation
from serving.embedded.apiserver.writes import deletion, object_meta, patches
from serving.embedded.apiserver.writes import scale as scales
from serving.errors import Cause
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind


@dataclass(frozen=True)
class Request:
    """What a write brings besides its body.

    Attributes:
        manager: the field manager.
        now: RFC 3339, whole seconds.
        uid: a fresh one, used on create.
        suffix: five random characters, used for generateName.
        field_validation: `Strict`, `Warn` or `Ignore`, of unknown fields.
        subresource: None, `status` or `scale`.
        force: an apply takes fields over from other managers.
    """

    manager: str
    now: str
    uid: str
    suffix: str
    field_validation: str = "Strict"
    subresource: str | None = None
    force: bool = False


class Outcome(NamedTuple):
    """The object to store, and the warnings to answer with."""

    object: Object
    warnings: tuple[str, ...]


def create(kind: Kind, namespace: str | None, body: Object, request: Request) -> Outcome:
    """Return the new object."""
    obj, warnings, clean = _read(kind, body, request)
    obj["metadata"] = object_meta.begin(
        kind, obj.get("metadata") or {}, namespace, uid=request.uid, now=request.now, suffix=request.suffix
    )
    if kind.status:
        obj.pop("status", None)
    _complete(kind, obj, None, clean=clean)
    obj["metadata"].pop("managedFields", None)
    owner = _owner(kind, request, managed_fields.UPDATE)
    return Outcome(_tracked(obj, claims.created(obj, schemas.of(kind), owner, request.now)), warnings)


def update(kind: Kind, old: Object, body: Object, request: Request) -> Outcome:
    """Return the object after a PUT; with a subresource only what belongs to that is written."""
    if request.subresource == "scale":
        _check_scale(kind, old, body)
        body = scales.from_scale(old, body)
    obj, warnings, clean = _read(kind, body, request, old)
    obj["metadata"] = object_meta.keep(kind, old["metadata"], obj.get("metadata") or {})
    obj = _scoped(kind, old, obj, request)
    _complete(kind, obj, old, clean=clean)
    entries = obj["metadata"].get("managedFields")
    before = old["metadata"].get("managedFields")
    base = before if entries is None else entries
    owner = _owner(kind, request, managed_fields.UPDATE)
    managers = managed_fields.updated(managed_fields.read(base)[0], old, obj, schemas.of(kind), owner)
    return Outcome(_settle(old, _tracked(obj, managed_fields.write(managers, base, request.now))), warnings)


def patch(kind: Kind, old: Object, patch: Any, content_type: str, request: Request) -> Outcome:
    """Return the object after a merge patch, JSON patch or strategic merge patch."""
    if request.subresource == "scale":
        patched = patches.patched(kind, scales.to_scale(old), patch, content_type, scales.SCHEMA)
    else:
        patched = patches.patched(kind, old, patch, content_type, schemas.of(kind))
    return update(kind, old, patched, request)


def apply(  # noqa: PLR0917 the shell calls all writes in one way
    kind: Kind, old: Object | None, namespace: str | None, name: str, body: Object, request: Request
) -> Outcome:
    """Return the object after a server-side apply, which creates it where `old` is None.

    Raises:
        errors.Conflict: other managers own fields that it would change, and `request.force` is not set.
    """
    if request.subresource == "scale":
        if old is not None:
            _check_scale(kind, old, body)
        body = _scale_configuration(kind, name, body)
    config, warnings, clean = _read(kind, body, request)
    meta = config.get("metadata") or {}
    if meta.get("managedFields"):
        raise status_errors.bad_request("metadata.managedFields must be nil")
    if meta.get("name", name) != name:
        raise status_errors.bad_request(
            f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        )
    broken = () if clean else conforming.broken(config, schemas.of(kind), partial=True)
    if broken:
        raise status_errors.unprocessable(kind, name, broken)
    if old is None:
        return Outcome(_applied_new(kind, namespace, name, config, request), warnings)
    return Outcome(_applied_over(kind, old, config, request), warnings)


def delete(kind: Kind, old: Object, options: Mapping[str, Any], request: Request) -> Object | None:
    """Return the object to store until it may go, or None where it goes now."""
    return deletion.delete(kind, old, options, request.now)


def after_write(kind: Kind, obj: Object) -> bool:
    """Whether the store removes the object now: it is being deleted and nothing holds it any longer."""
    return deletion.is_finished(kind, obj)


def _applied_new(kind: Kind, namespace: str | None, name: str, config: Object, request: Request) -> Object:
    if request.subresource:
        raise status_errors.not_found(kind, name)
    meta = {**(config.get("metadata") or {}), "name": name}
    if meta.get("uid"):
        why = (
            f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
        )
        raise status_errors.conflict(kind, name, why)
    obj = dict(config)
    obj["metadata"] = object_meta.begin(
        kind, meta, namespace, uid=request.uid, now=request.now, suffix=request.suffix
    )
    if kind.status:
        obj.pop("status", None)
        config = {key: value for key, value in config.items() if key != "status"}
    _complete(kind, obj, None, clean=True)
    owner = _owner(kind, request, managed_fields.APPLY)
    return _tracked(obj, claims.created(config, schemas.of(kind), owner, request.now))


def _applied_over(kind: Kind, old: Object, config: Object, request: Request) -> Object:
    schema = schemas.of(kind)
    sent = config.get("metadata") or {}
    object_meta.keep(kind, old["metadata"], sent)
    config = _configuration(kind, config, request)
    before = old["metadata"].get("managedFields")
    live: Object = {**old, "metadata": _unmanaged(old["metadata"])}
    owner = _owner(kind, request, managed_fields.APPLY)
    claimed = claims.applied(before or [], live, config, schema, owner, now=request.now)
    obj, entries = claimed or _contested(before, live, config, schema, owner, request)
    obj["metadata"] = object_meta.keep(kind, old["metadata"], obj.get("metadata") or {})
    obj = _scoped(kind, old, obj, request)
    _complete(kind, obj, old, clean=False)
    return _settle(old, _tracked(obj, entries))


def _contested(  # noqa: PLR0917 as its twin in `claims`
    before: list[Object] | None, live: Object, config: Object, schema: schemas.Schema, owner: Owner, request: Request
) -> claims.Claimed:  # fmt: skip
    """Apply where other owners may have a say."""
    managers, _ = managed_fields.read(before)
    if not managers:
        first = Owner(managed_fields.UPDATE, "before-first-apply", "", owner.api_version)
        managers[first] = frozenset(managed_fields.fields(live, schema))
    result = managed_fields.applied(managers, live, config, schema, owner, force=request.force)
    return claims.Claimed(result.object, managed_fields.write(result.managers, before, request.now))


def _configuration(kind: Kind, config: Object, request: Request) -> Object:
    """Return the part of an apply configuration that this resource or subresource may own."""
    if request.subresource == "status":
        return {key: value for key, value in config.items() if key in ("apiVersion", "kind", "status")}
    meta = {
        key: value
        for key, value in (config.get("metadata") or {}).items()
        if key not in ("resourceVersion", "uid")
    }
    return {
        key: (meta if key == "metadata" else value)
        for key, value in config.items()
        if not (key == "status" and kind.status)
    }


class Body(NamedTuple):
    """What a body says: without nulls and unknown fields, and the warnings about those. Shares what is unchanged."""

    object: Object
    warnings: tuple[str, ...]
    clean: bool
    """It was right as it came; what is missing was not asked."""


def _read(kind: Kind, body: Any, request: Request, old: Object | None = None) -> Body:
    if not isinstance(body, dict):
        raise status_errors.bad_request("the body of the request must be a JSON object")
    for field, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if body.get(field, wanted) != wanted:
            raise status_errors.bad_request(
                f"the {field} in the data ({body[field]}) does not match the expected {field} ({wanted})"
            )
    schema = schemas.of(kind)
    # What a patch left alone is the old object's own, which was read when it was written.
    new = {key: value for key, value in body.items() if value is not old.get(key)} if old else body
    if conforming.clean(new, schema):
        return Body({**body, "apiVersion": kind.api_version, "kind": kind.kind}, (), clean=True)
    unknown: list[str] = []
    obj = pruning.read(body, schema, unknown)
    assert isinstance(obj, dict)
    sent = obj.get("metadata", {})
    broken = conforming.broken({"metadata": sent}, schema, partial=True)
    if broken:
        raise status_errors.unprocessable(
            kind, str(sent.get("name", "")) if isinstance(sent, dict) else "", broken
        )
    obj |= {"apiVersion": kind.api_version, "kind": kind.kind}
    texts = tuple(f'unknown field "{path}"' for path in unknown)
    if texts and request.field_validation == "Strict":
        causes = [Cause(path, "unknown field", "FieldValueInvalid") for path in unknown]
        raise status_errors.bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"strict decoding error: {', '.join(texts)}",
            causes,
        )
    return Body(obj, texts if request.field_validation == "Warn" else (), clean=False)


def _scoped(kind: Kind, old: Object, obj: Object, request: Request) -> Object:
    """Return the new object with what this request may not write as it was: a status write changes status only."""
    if request.subresource == "status":
        meta = dict(old["metadata"])
        if "managedFields" in obj["metadata"]:
            meta["managedFields"] = obj["metadata"]["managedFields"]
        scoped = {key: value for key, value in old.items() if key != "status"}
        return {**scoped, "metadata": meta, **({"status": obj["status"]} if "status" in obj else {})}
    if not kind.status or (kind == kinds.NAMESPACE and "status" not in old):
        return obj
    kept = {key: value for key, value in obj.items() if key != "status"}
    return {**kept, **({"status": old["status"]} if "status" in old else {})}


def _complete(kind: Kind, obj: Object, old: Object | None, *, clean: bool) -> None:
    """Put defaults in, check every rule, count the generation; changes `obj` itself, and nothing below it.

    What is as it was has its defaults and was checked then: only rules between two versions are asked again.

    Args:
        kind: of the object.
        obj: the object after the write.
        old: the object before it, or None.
        clean: what is there is known to be right, though something may be missing.

    Raises:
        errors.Invalid: names every broken rule.
    """
    schema = schemas.of(kind)
    known = _unchanged(obj, old)
    changed = (obj.keys() | (old or {}).keys()) - known - {"status"}
    wants = bool(changed - admission.beside(kind))
    # Kinds' own defaults look into an object: it must have the right types then.
    structural = conforming.broken(obj, schema, known=known, partial=True) if changed and not clean else []
    if not structural:
        bare = dict(obj)
        obj |= pruning.default(obj, schema, known=known)
        if wants and admission.has_defaults(kind):
            obj |= {key: schemas.clone(value) for key, value in obj.items()}
            admission.defaults(kind, obj)
        structural = conforming.broken(obj, schema, known=known)
        if structural and changed:
            structural = conforming.broken(bare, schema, known=known, partial=True) or structural
    meta = obj["metadata"]
    broken = list(structural)
    if "metadata" not in known:
        broken = [*object_meta.check(kind, meta, old["metadata"] if old else None), *structural]
    if not structural:
        broken += cel_rules.check(obj, old, schema)
        broken += admission.check(kind, obj, old) if wants else ()
    if broken:
        raise status_errors.unprocessable(kind, meta.get("name") or meta.get("generateName", ""), broken)
    if old is not None and kind in object_meta.GENERATIONS and _wanted(obj) != _wanted(old):
        meta["generation"] = int(meta.get("generation") or 0) + 1


def _unchanged(obj: Object, old: Object | None) -> frozenset[str]:
    """Return the parts that are as they were, to the letter; who owns what does not count."""
    if old is None:
        return frozenset()
    same = {key for key, value in obj.items() if key in old and _same(old[key], value)}
    if _same(_unmanaged(old["metadata"]), _unmanaged(obj["metadata"])):
        same.add("metadata")
    return frozenset(same)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: to Python `True == 1 == 1.0`, and only one of them may be right."""
    return one is other or (one == other and orjson.dumps(one) == orjson.dumps(other))


def _unmanaged(meta: Object) -> Object:
    return {key: value for key, value in meta.items() if key != "managedFields"}


def _wanted(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _owner(kind: Kind, request: Request, operation: str) -> Owner:
    return Owner(operation, request.manager, request.subresource or "", kind.api_version)


def _tracked(obj: Object, entries: list[Object]) -> Object:
    meta = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": {**meta, **({"managedFields": entries} if entries else {})}}


def _settle(old: Object, new: Object) -> Object:
    """Return `old` itself where nothing changed."""
    return old if new == old else new


def _check_scale(kind: Kind, old: Object, body: Object) -> None:
    name = old["metadata"]["name"]
    if not isinstance(body, dict):
        raise status_errors.bad_request("the body of the request must be a JSON object")
    broken = list(validation.check(body, scales.SCHEMA))
    if broken:
        raise status_errors.unprocessable(kind, name, broken)


def _scale_configuration(kind: Kind, name: str, body: Object) -> Object:
    spec = {"spec": {"replicas": body["spec"]["replicas"]}} if "replicas" in (body.get("spec") or {}) else {}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, **spec}
