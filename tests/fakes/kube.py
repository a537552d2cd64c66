"""An API server in memory for controllers: the methods of `Kube`, and writes that fail on request.

    api = FakeKube()
    api.fail_next(errors.Unavailable("down"))              # the next write fails and is not stored
    api.fail_next(errors.Unavailable("lost"), done=True)   # stored, but the response is lost
    api.fail_next(errors.Unavailable("down"), skip=3)      # the fourth write from now
    reached = api.hang_next(skip=3)                        # the fourth write never returns

Writes go through the embedded server's own write path: defaults, rules, ownership and deletion are the same.
Tests in tests/contracts mark what it lacks: HTTP, pages, a disk.
"""

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from serving import errors
from serving.embedded.apiserver import object_meta, selectors, status_errors
from serving.embedded.apiserver.storage import garbage
from serving.embedded.apiserver.writes import patches, scale, write_path
from serving.embedded.apiserver.writes.write_path import WriteOptions, WriteRequest
from serving.kube.connection.client import Kube, Listing, WatchEvent
from serving.objects import Object, is_deleting
from serving.resources import kinds
from serving.resources.kinds import Kind
from tests.objects.stored_kinds import STORED_KINDS

Id = tuple[str, str, str]
"""Plural, namespace and name."""


@dataclass
class _Failure:
    skip: int
    error: Exception | asyncio.Event
    done: bool


class StoredChange(NamedTuple):
    """One write: `before` is None for a creation, `after` for a removal."""

    version: int
    kind: Kind
    namespace: str
    before: Object | None
    after: Object | None


class FakeKube(Kube):
    """All state is in the instance; several clients share one server by `api.client("component")`."""

    def __init__(self, field_manager: str = "slipway-test") -> None:
        self.field_manager = field_manager
        self.namespace = "default"
        self.objects: dict[Id, Object] = {}
        self.log: list[StoredChange] = []
        self.writes: list[str] = []
        self.now = "2026-01-01T00:00:00Z"
        self.refusals: list[Callable[[Kind, Object], str]] = []
        """Each may return the reason why an object cannot be created; the response is then 422."""
        self.documents: dict[str, Object | Callable[[], Object]] = {"/version": {"gitVersion": "v1.36.0"}}
        """Responses to a GET of other paths."""
        self.unreadable: set[str] = set()
        """Plurals of kinds that must not be listed."""
        self.unchecked: set[Kind] = {
            kinds.RESOURCE_CLAIM_TEMPLATE,
            kinds.POD_DISRUPTION_BUDGET,
            kinds.DAEMON_SET,
        }
        """Kinds whose objects are stored without validation: clusters have them or more of their fields."""
        self._failures: list[_Failure] = []
        self._versions = itertools.count(1)
        self._uids = itertools.count(1)
        self._changed = asyncio.Event()

    def client(self, component: str) -> "FakeKube":
        """Return another client of the same server, with its own field manager."""
        copied = copy.copy(self)
        copied.field_manager = f"slipway-{component}"
        return copied

    def fail_next(self, error: Exception, *, skip: int = 0, done: bool = False) -> None:
        """Fail one write (after `skip` others): before it is stored, or, with `done`, after it."""
        self._failures.append(_Failure(skip, error, done))

    def hang_next(self, *, skip: int = 0, done: bool = False) -> asyncio.Event:
        """Never answer one write (after `skip` others). The returned event is set when it is reached."""
        reached = asyncio.Event()
        self._failures.append(_Failure(skip, reached, done))
        return reached

    def find(self, kind: Kind, namespace: str | None = None) -> list[Object]:
        """Return all objects of the kind, without failure; for asserts."""
        return [
            _copy(obj)
            for (plural, ns, _), obj in sorted(self.objects.items())
            if plural == kind.plural and namespace in (None, ns)
        ]

    def serve(self, *served: Kind) -> None:
        """Serve exactly these kinds of other projects, as after an installation of their definitions."""
        self.unchecked |= set(served)
        for path in [path for path in self.documents if path.startswith("/apis")]:
            del self.documents[path]
        groups: dict[str, list[str]] = {}
        for kind in served:
            if kind.version not in groups.setdefault(kind.group, []):
                groups[kind.group].append(kind.version)
            verbs = ["get", "list", "watch", "create", "patch", "delete"]
            resource = {"name": kind.plural, "kind": kind.kind, "namespaced": True, "verbs": verbs}
            listed = self.documents.setdefault(kind.prefix, {"resources": []})
            assert isinstance(listed, dict)
            listed["resources"].append(resource)
        self.documents["/apis"] = {
            "groups": [
                {"name": name, "versions": [{"version": version} for version in versions]}
                for name, versions in groups.items()
            ]
        }

    def add(self, kind: Kind, obj: Object) -> Object:
        """Create an object with its status as another client, without failure."""
        meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
        created = self._new(kind, {**obj, "metadata": meta})
        id_ = _id(kind, created)
        assert id_ not in self.objects, f"{id_} exists already"
        status = {"status": _copy(obj["status"])} if "status" in obj else {}
        meta = {**_copy(meta), **created["metadata"]}
        return self._store(kind, id_, {**created, **status, "metadata": meta})

    def change(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Merge-patch any part of an object as another client, without validation or failure."""
        id_ = (kind.plural, namespace, name)
        old = self._existing(kind, id_)
        new = patches.merge(_copy(old), patch)
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return self._replace(kind, id_, new)

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        """Remove an object at once, as with a grace period of 0."""
        self._remove(kind, (kind.plural, namespace, name))

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        await asyncio.sleep(0)
        return _copy(self._existing(kind, (kind.plural, namespace or "", name)))

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        page_size: int = 500,
        keep: Callable[[Object], Object] | None = None,
    ) -> Listing:
        await asyncio.sleep(0)
        if kind.plural in self.unreadable:
            raise errors.Forbidden(403, "Forbidden", f"{kind.plural}.{kind.group} is forbidden")
        selected = _selector(kind, labels, fields)
        version = self.log[-1].version if self.log else 0
        listed = [obj for obj in self.find(kind, namespace) if selected(obj)]
        return Listing(listed if keep is None else [keep(obj) for obj in listed], str(version))

    async def watch(
        self,
        kind: Kind,
        namespace: str | None,
        resource_version: str,
        *,
        labels: str = "",
        fields: str = "",
        timeout_seconds: int = 300,
    ) -> AsyncIterator[WatchEvent]:
        selected = _selector(kind, labels, fields)
        position = next(
            (i for i, e in enumerate(self.log) if e.version > int(resource_version)), len(self.log)
        )
        while True:
            while position < len(self.log):
                change = self.log[position]
                position += 1
                if change.kind == kind and namespace in (None, change.namespace):
                    for event in _events(change, selected):
                        yield event
            changed = self._changed
            await changed.wait()

    async def raw(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        await asyncio.sleep(0)
        if path.endswith("/scale"):
            namespace, plural, name = path.split("/")[-4:-1]
            kind = next(kind for kind in kinds.ALL if kind.plural == plural)
            return orjson.dumps(scale.to_scale(kind, self._existing(kind, (plural, namespace, name))))
        if path.endswith("/leases"):
            return orjson.dumps({"items": self.find(kinds.LEASE, path.split("/")[-2])})
        if path not in self.documents:
            raise errors.NotFound(404, "NotFound", path)
        document = self.documents[path]
        return orjson.dumps(document() if callable(document) else document)

    async def stream(self, path: str, query: Mapping[str, str] | None = None) -> AsyncIterator[bytes]:
        yield await self.raw(path, query)

    async def create(self, kind: Kind, obj: Object) -> Object:
        async with self._write(f"create {kind.plural}/{obj['metadata'].get('name')}"):
            return self._insert(kind, self._new(kind, obj))

    async def update(self, kind: Kind, obj: Object, *, subresource: str | None = None) -> Object:
        async with self._write(f"update {kind.plural}/{obj['metadata']['name']}"):
            id_ = _id(kind, obj)
            old = self._existing(kind, id_)
            if object_meta.requires_version(kind) and not obj["metadata"].get("resourceVersion"):
                cause = status_errors.invalid(
                    "metadata.resourceVersion", 0, "must be specified for an update"
                )
                raise status_errors.unprocessable(kind, id_[2], [cause])
            request = self._write_request(subresource=subresource)
            return self._replace(kind, id_, write_path.update(kind, old, _copy(obj), request).object)

    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Any,
        *,
        subresource: str | None = None,
        content_type: str = "application/merge-patch+json",
    ) -> Object:
        async with self._write(f"patch {kind.plural}/{name}"):
            id_ = (kind.plural, namespace or "", name)
            if kind not in kinds.ALL:
                return self._patch_unchecked(kind, id_, patch)
            request = self._write_request(subresource=subresource)
            old = _copy(self._existing(kind, id_))
            outcome = write_path.patch(kind, old, _copy(patch), content_type, request)
            new = self._replace(kind, id_, outcome.object)
            return scale.to_scale(kind, new) if subresource == "scale" else new

    async def apply(
        self,
        kind: Kind,
        obj: Object,
        *,
        subresource: str | None = None,
        force: bool = True,
        manager: str | None = None,
    ) -> Object:
        meta = obj["metadata"]
        suffix = f"/{subresource}" if subresource else ""
        async with self._write(f"apply {kind.plural}/{meta['name']}{suffix}"):
            namespace = meta.get("namespace", self.namespace) if kind.namespaced else None
            id_ = (kind.plural, namespace or "", meta["name"])
            old = _copy(self.objects.get(id_))
            if kind not in kinds.ALL:
                return self._apply_unchecked(kind, id_, obj)
            request = self._write_request(subresource=subresource, force=force, manager=manager)
            outcome = write_path.apply(kind, old, namespace, meta["name"], _sent(kind, obj), request)
            if old is None:
                return self._insert(kind, outcome.object)
            return self._replace(kind, id_, outcome.object)

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        propagation: str = "Background",
        grace_seconds: int | None = None,
    ) -> None:
        async with self._write(f"delete {kind.plural}/{name}"):
            id_ = (kind.plural, namespace or "", name)
            old = self.objects.get(id_)
            if old is None or (uid and old["metadata"]["uid"] != uid):
                return
            options: Object = {"propagationPolicy": propagation}
            if grace_seconds is not None:
                options["gracePeriodSeconds"] = grace_seconds
            if kind == kinds.NAMESPACE:
                for child_kind, child_id in self._located():
                    if child_id[1] == name and child_id in self.objects:
                        self._delete(child_kind, child_id, {})
            self._delete(kind, id_, options)

    def _write_request(
        self, *, subresource: str | None = None, force: bool = False, manager: str | None = None
    ) -> WriteRequest:
        number = next(self._uids)
        options = WriteOptions(manager or self.field_manager, subresource=subresource, force=force)
        return WriteRequest(STORED_KINDS, options, self.now, uid=f"uid-{number}", suffix=f"{number:05d}")

    def _write(self, operation: str) -> "_Write":
        self.writes.append(operation)
        next_failure = next((f for f in self._failures if f.skip == 0), None)
        for failure in self._failures:
            failure.skip -= 1
        if next_failure is not None:
            self._failures.remove(next_failure)
        return _Write(next_failure)

    def _existing(self, kind: Kind, id_: Id) -> Object:
        if id_ not in self.objects:
            raise status_errors.not_found(kind, id_[2])
        return self.objects[id_]

    def _new(self, kind: Kind, obj: Object) -> Object:
        """Return the object as a server would first store it."""
        namespace = obj["metadata"].get("namespace", self.namespace) if kind.namespaced else None
        request, body = self._write_request(), _sent(kind, obj)
        if kind not in self.unchecked:
            return write_path.create(kind, namespace, body, request).object
        meta = {"namespace": namespace, "uid": request.uid, "creationTimestamp": request.now, "generation": 1}
        return {**body, "metadata": {**body["metadata"], **meta}}

    def _apply_unchecked(self, kind: Kind, id_: Id, obj: Object) -> Object:
        """Replace what the object names, as an apply by the only writer does."""
        old = self.objects.get(id_)
        if old is None:
            return self._insert(kind, self._new(kind, obj))
        meta = {**old["metadata"], **obj["metadata"]}
        return self._replace(kind, id_, {**old, **_copy(obj), "metadata": meta})

    def _patch_unchecked(self, kind: Kind, id_: Id, patch: Object) -> Object:
        """Merge a patch, if it is for this resourceVersion, or for any."""
        old = self._existing(kind, id_)
        meta = dict(patch["metadata"])
        if meta.pop("resourceVersion", version := old["metadata"]["resourceVersion"]) != version:
            raise errors.Conflict(409, "Conflict", f"{kind.plural} {id_[2]} has changed")
        return self._replace(kind, id_, patches.merge(_copy(old), {**patch, "metadata": meta}))

    def _insert(self, kind: Kind, new: Object) -> Object:
        for reason in filter(None, (refusal(kind, new) for refusal in self.refusals)):
            raise errors.Invalid(422, "Invalid", reason)
        id_ = _id(kind, new)
        if kind.namespaced and id_[1] != "default" and ("namespaces", "", id_[1]) not in self.objects:
            raise status_errors.not_found(kinds.NAMESPACE, id_[1])
        if id_ in self.objects:
            raise errors.AlreadyExists(409, "AlreadyExists", f'{kind.plural} "{id_[2]}" already exists')
        return self._store(kind, id_, new)

    def _replace(self, kind: Kind, id_: Id, replacement: Object) -> Object:
        if replacement == self.objects[id_]:
            return _copy(replacement)
        stored = self._store(kind, id_, replacement)
        if write_path.is_gone(kind, replacement):
            self._remove(kind, id_)
        return stored

    def _delete(self, kind: Kind, id_: Id, options: Object) -> None:
        old = self._existing(kind, id_)
        remaining = write_path.delete(kind, old, options, self._write_request())
        if remaining is None:
            self._remove(kind, id_)
        elif remaining != old:
            self._store(kind, id_, remaining)
            self._collect(remaining)

    def _store(self, kind: Kind, id_: Id, new: Object) -> Object:
        version = next(self._versions)
        stored = {**new, "metadata": {**new["metadata"], "resourceVersion": str(version)}}
        before, self.objects[id_] = self.objects.get(id_), stored
        self._publish(StoredChange(version, kind, id_[1], before, stored))
        return _copy(stored)

    def _remove(self, kind: Kind, id_: Id) -> None:
        before = self._existing(kind, id_)
        del self.objects[id_]
        self._publish(StoredChange(next(self._versions), kind, id_[1], before, None))
        self._collect(before)

    def _publish(self, change: StoredChange) -> None:
        self.log.append(change)
        self._changed.set()
        self._changed.clear()

    def _located(self) -> Sequence[tuple[Kind, Id]]:
        by_plural = {kind.plural: kind for kind in kinds.ALL}
        return [(by_plural[id_[0]], id_) for id_ in list(self.objects) if id_[0] in by_plural]

    def _collect(self, changed: Object) -> None:
        """Take the garbage collector's steps for an object that was deleted or is being deleted."""
        uid = changed["metadata"]["uid"]
        dependents = [
            obj
            for obj in self.objects.values()
            if any(reference["uid"] == uid for reference in garbage.references(obj))
        ]
        alive = {obj["metadata"]["uid"]: obj for obj in self.objects.values()}
        if uid in alive:
            steps = garbage.steps_for_owner(alive[uid], dependents)
        else:
            steps = [
                step
                for child in dependents
                for step in garbage.steps_for_dependent(STORED_KINDS, child, alive.get)
            ]
        owners = {reference["uid"] for reference in garbage.references(changed)} & alive.keys()
        for step in steps:
            self._take(step)
        for owner in owners:
            if is_deleting(alive[owner]) and uid not in alive:
                self._collect(alive[owner])

    def _take(self, step: garbage.Step) -> None:
        type_of_target = (step.target["apiVersion"], step.target["kind"])
        kind = kinds.of(*type_of_target) or next(
            kind for kind in self.unchecked if (kind.api_version, kind.kind) == type_of_target
        )
        id_ = _id(kind, step.target)
        if id_ not in self.objects:
            return
        if isinstance(step, garbage.Delete):
            self._delete(kind, id_, {"propagationPolicy": step.policy})
        elif isinstance(step, garbage.RemoveFromStore):
            self._remove(kind, id_)
        else:
            self._replace(kind, id_, step.after)
            owner = next(
                (obj for obj in self.objects.values() if obj["metadata"]["uid"] in _orphaned(step)), None
            )
            if owner is not None:
                self._collect(owner)


def _orphaned(step: garbage.Rewrite) -> set[str]:
    """Return the uids of the owners that the step removes from its object."""
    before, after = (garbage.references(obj) for obj in (step.target, step.after))
    return {reference["uid"] for reference in before} - {reference["uid"] for reference in after}


def _id(kind: Kind, obj: Object) -> Id:
    meta = obj["metadata"]
    return kind.plural, meta.get("namespace", "") if kind.namespaced else "", meta["name"]


def _copy(value: Any) -> Any:
    """Return a copy as a client gets it, by JSON: much faster than `copy.deepcopy`."""
    return orjson.loads(orjson.dumps(value))


def _sent(kind: Kind, obj: Object) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind, **_copy(obj)}


def _selector(kind: Kind, labels: str, fields: str) -> Callable[[Object], bool]:
    by_label, by_field = selectors.labels(labels), selectors.fields(kind, fields)
    return lambda obj: by_label(obj) and by_field(obj)


def _events(change: StoredChange, selected: Callable[[Object], bool]) -> list[WatchEvent]:
    """Return the watch events of a change; an object that stops matching the selector is DELETED."""
    before = change.before is not None and selected(change.before)
    if change.after is not None and selected(change.after):
        return [WatchEvent("MODIFIED" if before else "ADDED", _copy(change.after))]
    if not before:
        return []
    assert change.before is not None
    deleted = _copy(change.before)
    deleted["metadata"]["resourceVersion"] = str(change.version)
    return [WatchEvent("DELETED", deleted)]


class _Write:
    def __init__(self, failure: _Failure | None) -> None:
        self._failure = failure

    async def __aenter__(self) -> None:
        await asyncio.sleep(0)
        if self._failure is not None and not self._failure.done:
            await _fail(self._failure.error)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._failure is not None and self._failure.done:
            await _fail(self._failure.error)


async def _fail(error: Exception | asyncio.Event) -> None:
    if isinstance(error, Exception):
        raise error
    error.set()
    await asyncio.Event().wait()
