"""An API server in memory, for controllers: the methods of `Kube`, told when to fail.

    api = FakeKube()
    api.fail_next(errors.Unavailable("down"))              # the next write, not done
    api.fail_next(errors.Unavailable("lost"), done=True)   # done, but the answer is lost
    api.fail_next(errors.Unavailable("down"), skip=3)      # the fourth write from now
    reached = api.hang_next(skip=3)                        # as a client sees it that is killed there

It does what controllers rely on (names, uids, generation, conflicts, server-side apply's giving up of fields,
graceful deletion of Pods, finalizers, garbage collection, ordered watches) and none of admission.
"""

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from serving import errors
from serving.kube.client import JSON_PATCH, Kube, Listing, WatchEvent
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind

Id = tuple[str, str, str]


@dataclass
class _Failure:
    skip: int
    error: Exception | asyncio.Event
    done: bool


class FakeKube(Kube):
    """All state is in the instance; several clients share one server by `api.client("component")`."""

    def __init__(self, field_manager: str = "slipway-test") -> None:
        self.field_manager = field_manager
        self.namespace = "default"
        self.objects: dict[Id, Object] = {}
        self.applied: dict[tuple[Id, str, str], Object] = {}
        self.log: list[tuple[int, Kind, str, Object]] = []
        self.writes: list[str] = []
        self.now = "2026-01-01T00:00:00Z"
        self.refusals: list[Callable[[Kind, Object], str]] = []
        """Each may say why an object cannot be created: the API's answer is 422."""
        self.documents: dict[str, Object | Callable[[], Object]] = {}
        """What a GET of other paths answers."""
        self._failures: list[_Failure] = []
        self._versions = itertools.count(1)
        self._uids = itertools.count(1)
        self._changed = asyncio.Event()

    def client(self, component: str) -> "FakeKube":
        """Return another client of the same server, with its own field manager."""
        other = copy.copy(self)
        other.field_manager = f"slipway-{component}"
        return other

    def fail_next(self, error: Exception, *, skip: int = 0, done: bool = False) -> None:
        """Fail one write (after `skip` others): before it is done, or (`done`) after, with the answer lost."""
        self._failures.append(_Failure(skip, error, done))

    def hang_next(self, *, skip: int = 0, done: bool = False) -> asyncio.Event:
        """Never answer one write (after `skip` others); the event says when it is reached: then kill the client."""
        reached = asyncio.Event()
        self._failures.append(_Failure(skip, reached, done))
        return reached

    def find(self, kind: Kind, namespace: str | None = None) -> list[Object]:
        """Return all objects of the kind, without failing; for asserts."""
        return [
            copy.deepcopy(obj)
            for (plural, ns, _), obj in self.objects.items()
            if plural == kind.plural and namespace in (None, ns)
        ]

    def change(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Merge-patch any part of an object as somebody else, without failing; for arranging."""
        id_ = (kind.plural, namespace, name)
        return self._store(kind, id_, _merge(copy.deepcopy(self._old(id_)), patch))

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        """Remove at once (as the agent does to a Pod that has ended, with a grace period of 0)."""
        self._remove(kind, (kind.plural, namespace, name))

    async def close(self) -> None:
        """Nothing is open."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        await asyncio.sleep(0)
        return copy.deepcopy(self._old((kind.plural, namespace or "", name)))

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
    ) -> Listing:
        await asyncio.sleep(0)
        version = max((entry[0] for entry in self.log), default=0)
        return Listing([o for o in self.find(kind, namespace) if _selected(o, labels)], str(version))

    async def watch(
        self, kind: Kind, namespace: str | None, resource_version: str, *, labels: str = "", fields: str = "",
        timeout_seconds: int = 300,
    ) -> AsyncIterator[WatchEvent]:  # fmt: skip
        position = next((i for i, e in enumerate(self.log) if e[0] > int(resource_version)), len(self.log))
        while True:
            while position < len(self.log):
                _, seen, type_, obj = self.log[position]
                position += 1
                here = namespace in (None, obj["metadata"].get("namespace"))
                if seen == kind and here and _selected(obj, labels):
                    yield WatchEvent(type_, copy.deepcopy(obj))
            changed = self._changed
            await changed.wait()

    async def raw(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        await asyncio.sleep(0)
        if path.endswith("/scale"):
            namespace, plural, name = path.split("/")[-4:-1]
            return orjson.dumps(_scale(self._old((plural, namespace, name))))
        if path not in self.documents:
            raise errors.NotFound(404, "NotFound", path)
        found = self.documents[path]
        return orjson.dumps(found() if callable(found) else found)

    async def create(self, kind: Kind, obj: Object) -> Object:
        async with self._write(f"create {kind.plural}/{obj['metadata'].get('name')}"):
            return self._create(kind, obj)

    async def update(self, kind: Kind, obj: Object, *, subresource: str | None = None) -> Object:
        meta = obj["metadata"]
        async with self._write(f"update {kind.plural}/{meta['name']}"):
            id_ = (kind.plural, meta.get("namespace", ""), meta["name"])
            old = self._old(id_)
            _check_version(old, obj)
            if subresource == "status":
                return self._store(kind, id_, {**copy.deepcopy(old), "status": copy.deepcopy(obj["status"])})
            return self._store(
                kind, id_, {**copy.deepcopy(obj), "status": copy.deepcopy(old.get("status", {}))}
            )

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, patch: Any, *, subresource: str | None = None,
        content_type: str = "application/merge-patch+json",
    ) -> Object:  # fmt: skip
        async with self._write(f"patch {kind.plural}/{name}"):
            id_ = (kind.plural, namespace or "", name)
            old = self._old(id_)
            if content_type == JSON_PATCH:
                import jsonpatch

                return self._store(kind, id_, jsonpatch.apply_patch(copy.deepcopy(old), patch))
            _check_version(old, patch)
            if subresource == "scale":
                owned = {"f:spec": {"f:replicas": {}}}
                mine = [{"manager": self.field_manager, "subresource": "scale", "fieldsV1": owned}]
                count = patch["spec"]["replicas"]
                patch = {"metadata": {"managedFields": mine}, "spec": {"replicas": count}}
            elif subresource == "status":
                patch = {"status": patch.get("status", {})}
            return self._store(kind, id_, _merge(copy.deepcopy(old), patch))

    async def apply(
        self, kind: Kind, obj: Object, *, subresource: str | None = None, force: bool = True,
        manager: str | None = None,
    ) -> Object:  # fmt: skip
        meta = obj["metadata"]
        async with self._write(
            f"apply {kind.plural}/{meta['name']}{'/' + subresource if subresource else ''}"
        ):
            id_ = (
                kind.plural,
                meta.get("namespace", self.namespace) if kind.namespaced else "",
                meta["name"],
            )
            wanted = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}
            remembered = (id_, manager or self.field_manager, subresource or "")
            if id_ not in self.objects:
                if subresource:
                    self._old(id_)
                result = self._create(kind, obj)
            else:
                old = copy.deepcopy(self.objects[id_])
                _forget(old, self.applied.get(remembered, {}), wanted)
                result = self._store(kind, id_, _merge(old, copy.deepcopy(wanted)))
            self.applied[remembered] = copy.deepcopy(wanted)
            return result

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None,
        propagation: str = "Background",
    ) -> None:  # fmt: skip
        async with self._write(f"delete {kind.plural}/{name}"):
            id_ = (kind.plural, namespace or "", name)
            old = self.objects.get(id_)
            if old is None or (uid and old["metadata"]["uid"] != uid):
                return
            if kind == kinds.POD or old["metadata"].get("finalizers"):
                if "deletionTimestamp" not in old["metadata"]:
                    marked = copy.deepcopy(old)
                    marked["metadata"] |= {"deletionTimestamp": self.now, "deletionGracePeriodSeconds": 30}
                    self._store(kind, id_, marked)
            else:
                self._remove(kind, id_)

    def _write(self, what: str) -> "_Write":
        self.writes.append(what)
        due = next((f for f in self._failures if f.skip == 0), None)
        for failure in self._failures:
            failure.skip -= 1
        if due is not None:
            self._failures.remove(due)
        return _Write(due)

    def _old(self, id_: Id) -> Object:
        if id_ not in self.objects:
            raise errors.NotFound(404, "NotFound", f'{id_[0]} "{id_[2]}" not found')
        return self.objects[id_]

    def _create(self, kind: Kind, obj: Object) -> Object:
        for words in filter(None, (refusal(kind, obj) for refusal in self.refusals)):
            raise errors.Invalid(422, "Invalid", words)
        new = copy.deepcopy(obj)
        meta = new["metadata"]
        if kind.namespaced:
            meta.setdefault("namespace", self.namespace)
        number = next(self._uids)
        if "name" not in meta:
            meta["name"] = f"{meta['generateName']}{number:05d}"
        id_ = (kind.plural, meta.get("namespace", ""), meta["name"])
        if id_ in self.objects:
            raise errors.AlreadyExists(409, "AlreadyExists", f'{kind.plural} "{meta["name"]}" already exists')
        meta |= {"uid": f"uid-{number}", "creationTimestamp": self.now, "generation": 1}
        new |= {"apiVersion": kind.api_version, "kind": kind.kind}
        return self._store(kind, id_, new)

    def _store(self, kind: Kind, id_: Id, new: Object) -> Object:
        old = self.objects.get(id_)
        if old is not None and new == old:
            return copy.deepcopy(old)
        meta = new["metadata"]
        if old is not None and new.get("spec") != old.get("spec"):
            meta["generation"] = old["metadata"]["generation"] + 1
        version = next(self._versions)
        meta["resourceVersion"] = str(version)
        self.objects[id_] = new
        self._tell(version, kind, "MODIFIED" if old is not None else "ADDED", new)
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and kind != kinds.POD:
            self._remove(kind, id_)
        return copy.deepcopy(new)

    def _remove(self, kind: Kind, id_: Id) -> None:
        gone = copy.deepcopy(self._old(id_))
        del self.objects[id_]
        version = next(self._versions)
        gone["metadata"]["resourceVersion"] = str(version)
        self._tell(version, kind, "DELETED", gone)
        for other in kinds.ALL:
            for child in self.find(other, gone["metadata"].get("namespace")):
                owners = child["metadata"].get("ownerReferences") or []
                if any(owner["uid"] == gone["metadata"]["uid"] for owner in owners):
                    self._remove(other, (other.plural, id_[1], child["metadata"]["name"]))

    def _tell(self, version: int, kind: Kind, type_: str, obj: Object) -> None:
        self.log.append((version, kind, type_, copy.deepcopy(obj)))
        self._changed.set()
        self._changed.clear()


def _scale(obj: Object) -> Object:
    labels = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    counted = (obj.get("status") or {}).get("replicas", 0)
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return {
        "metadata": obj["metadata"],
        "spec": {"replicas": obj["spec"].get("replicas", 0)},
        "status": {"replicas": counted, "selector": selector},
    }


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


def _check_version(old: Object, new: Object) -> None:
    wanted = new.get("metadata", {}).get("resourceVersion")
    if wanted and wanted != old["metadata"]["resourceVersion"]:
        raise errors.Conflict(409, "Conflict", "the object has been modified")


def _merge(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = old if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def _forget(old: Object, before: Object, wanted: Object) -> None:
    """Drop what this manager applied before and no longer names."""
    for key, value in before.items():
        if key not in wanted:
            old.pop(key, None)
        elif isinstance(value, dict) and isinstance(wanted[key], dict) and isinstance(old.get(key), dict):
            _forget(old[key], value, wanted[key])


def _selected(obj: Object, labels: str) -> bool:
    """Equality and existence terms only."""
    own = obj["metadata"].get("labels") or {}
    for term in filter(None, labels.split(",")):
        key, equals, value = term.replace("==", "=").partition("=")
        if (own.get(key) != value) if equals else (key not in own):
            return False
    return True
