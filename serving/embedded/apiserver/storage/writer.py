"""Writes to the store: reads the newest state, calls `write_path`, and submits its outcome.

Checks against other objects are here: the name is free, and the namespace exists and is not terminating.
"""

import datetime as dt
import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from serving import clock, errors
from serving.embedded.apiserver import object_meta, status_errors
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.embedded.apiserver.storage.history import ObjectKey, ObjectVersion
from serving.embedded.apiserver.storage.store import ObjectStore, PendingWrite
from serving.embedded.apiserver.writes import write_path
from serving.embedded.apiserver.writes.write_path import WriteOptions, WriteOutcome, WriteRequest
from serving.objects import Object, is_deleting
from serving.resources import kinds
from serving.resources.kinds import Kind

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Alphabet of k8s.io/apimachinery/pkg/util/rand: no vowels, so no words."""
_UID_BYTES, _SUFFIX_CHARACTERS = 16, 5
DEFAULT_NAMESPACE = "default"


def _request(stored_kinds: StoredKinds, options: WriteOptions) -> WriteRequest:
    """Return a write request as of now."""
    return WriteRequest(stored_kinds, options, _format_second(clock.now().replace(microsecond=0)))


def _creation_request(stored_kinds: StoredKinds, options: WriteOptions, newest: str) -> WriteRequest:
    """Return a write request with a uid and a name suffix, as of now, or after `newest` if that is later."""
    now = _format_second(clock.now().replace(microsecond=0))
    if now < newest:
        now = clock.rfc3339(clock.parse(newest) + dt.timedelta(seconds=1))
    random = secrets.token_bytes(_UID_BYTES + _SUFFIX_CHARACTERS)
    uid = str(uuid.UUID(bytes=random[:_UID_BYTES], version=4))
    suffix = "".join(_SUFFIX_ALPHABET[byte % len(_SUFFIX_ALPHABET)] for byte in random[_UID_BYTES:])
    return WriteRequest(stored_kinds, options, now, uid, suffix)


@lru_cache(1)
def _format_second(moment: dt.datetime) -> str:
    """Return whole seconds in RFC 3339; cached, as all writes of one second have the same text."""
    return clock.rfc3339(moment)


@dataclass(frozen=True)
class WriteResult:
    """The result of a write, for the response."""

    object: Object
    """The object after the write; of a removed one, its last state."""
    body: bytes | None = None
    """`object` in JSON, where the store has serialized it."""
    warnings: tuple[str, ...] = ()
    created: bool = False
    removed: bool = False
    """Whether the object is gone, and not only marked as deleted."""


class ObjectWriter:
    """The write operations of the API on a store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._newest: dict[Kind, str] = {}
        """The newest creation time of each kind with `created_in_order` of which this process has created an
        object."""

    async def start(self) -> None:
        """Create the namespace `default` where it is missing."""
        if self.store.get(kinds.NAMESPACE, ObjectKey("", DEFAULT_NAMESPACE)) is None:
            body: Object = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": DEFAULT_NAMESPACE},
            }
            await self.create(kinds.NAMESPACE, None, body, WriteOptions("slipway-api"))

    async def create(
        self, kind: Kind, namespace: str | None, body: Object, options: WriteOptions
    ) -> WriteResult:
        """Create an object.

        Raises:
            errors.AlreadyExists: the name is taken.
            errors.ApiError: 404 for a missing namespace, 403 for a terminating one, 4xx for a bad object.
        """
        request = _creation_request(self.store.kinds, options, self._newest_creation(kind))
        outcome = write_path.create(kind, namespace, body, request)
        return await self._insert(kind, namespace, outcome, options)

    def _newest_creation(self, kind: Kind) -> str:
        """Return the newest creation time of a kind with `created_in_order`; empty without one.

        The next object is not older, though the clock was set back.
        """
        definition = self.store.kinds.definitions.get(kind)
        if definition is None or not definition.created_in_order:
            return ""
        if kind not in self._newest:
            stored = self.store.objects(kind).values()
            self._newest[kind] = max(
                (entry.object["metadata"]["creationTimestamp"] for entry in stored), default=""
            )
        return self._newest[kind]

    async def _insert(
        self, kind: Kind, namespace: str | None, outcome: WriteOutcome, options: WriteOptions
    ) -> WriteResult:
        obj = outcome.object
        key = ObjectKey(namespace or "", obj["metadata"]["name"])
        self._check_namespace(kind, key)
        if self.store.newest(kind, key) is not None:
            raise errors.AlreadyExists(
                409,
                "AlreadyExists",
                f'{status_errors.resource(kind)} "{key.name}" already exists',
                (),
                {"name": key.name, "group": kind.group, "kind": kind.plural},
            )
        if options.dry_run:
            return WriteResult(obj, None, tuple(outcome.warnings), created=True)
        if kind in self._newest:
            self._newest[kind] = max(self._newest[kind], obj["metadata"]["creationTimestamp"])
        entry = await self.store.submit(kind, key, obj).committed()
        return WriteResult(entry.object, entry.body, tuple(outcome.warnings), created=True)

    def _check_namespace(self, kind: Kind, key: ObjectKey) -> None:
        if not kind.namespaced:
            return
        namespace = self.store.newest(kinds.NAMESPACE, ObjectKey("", key.namespace))
        if namespace is None:
            raise status_errors.not_found(kinds.NAMESPACE, key.namespace)
        if is_deleting(namespace.object):
            reason = (
                f"unable to create new content in namespace {key.namespace} because it is being terminated"
            )
            cause = errors.Cause(
                "metadata.namespace",
                f"namespace {key.namespace} is being terminated",
                errors.NAMESPACE_TERMINATING,
            )
            message = f'{status_errors.resource(kind)} "{key.name}" is forbidden: {reason}'
            raise errors.Forbidden(403, "Forbidden", message, (cause,), status_errors.details(kind, key.name))

    def existing(self, kind: Kind, key: ObjectKey) -> ObjectVersion:
        """Return the object including pending writes.

        Raises:
            errors.NotFound: it does not exist.
        """
        entry = self.store.newest(kind, key)
        if entry is None:
            raise status_errors.not_found(kind, key.name)
        return entry

    async def update(self, kind: Kind, key: ObjectKey, body: Object, options: WriteOptions) -> WriteResult:
        """Replace an object, its status or its scale."""
        old = self.existing(kind, key)
        if options.subresource != "scale" and object_meta.requires_version(kind):
            _require_version(kind, key, body)
        outcome = write_path.update(kind, old.object, body, _request(self.store.kinds, options))
        return await self._replace(kind, key, old, outcome, options)

    async def patch(
        self, kind: Kind, key: ObjectKey, patch: Any, content_type: str, options: WriteOptions
    ) -> WriteResult:
        """Patch an object, its status or its scale."""
        old = self.existing(kind, key)
        outcome = write_path.patch(kind, old.object, patch, content_type, _request(self.store.kinds, options))
        return await self._replace(kind, key, old, outcome, options)

    async def apply(self, kind: Kind, key: ObjectKey, body: Object, options: WriteOptions) -> WriteResult:
        """Apply server-side; creates a missing object, but not through a subresource."""
        namespace = key.namespace or None
        old = self.store.newest(kind, key)
        if old is None and options.subresource is not None:
            raise status_errors.not_found(kind, key.name)
        stored_kinds = self.store.kinds
        request = (
            _creation_request(stored_kinds, options, self._newest_creation(kind))
            if old is None
            else _request(stored_kinds, options)
        )
        outcome = write_path.apply(
            kind, None if old is None else old.object, namespace, key.name, body, request
        )
        if old is None:
            return await self._insert(kind, namespace, outcome, options)
        return await self._replace(kind, key, old, outcome, options)

    async def _replace(
        self, kind: Kind, key: ObjectKey, old: ObjectVersion, outcome: WriteOutcome, options: WriteOptions
    ) -> WriteResult:
        obj, warnings = outcome.object, tuple(outcome.warnings)
        if options.dry_run:
            return WriteResult(obj, None, warnings)
        if obj is old.object:
            # The old object may be pending itself, and its commit may fail.
            await self.store.settled(kind, key)
            return WriteResult(old.object, old.body, warnings)
        # The garbage collector removes a namespace, once its objects are gone.
        removed = kind != kinds.NAMESPACE and write_path.is_gone(kind, obj)
        entry = await self.store.submit(kind, key, None if removed else obj).committed()
        if removed:
            return WriteResult(obj, None, warnings, removed=True)
        return WriteResult(entry.object, entry.body, warnings)

    async def delete(
        self, kind: Kind, key: ObjectKey, deletion: Object, options: WriteOptions
    ) -> WriteResult:
        """Delete an object, or mark it as deleted while finalizers or a grace period hold it."""
        old = self.existing(kind, key)
        if kind == kinds.NAMESPACE and key.name == DEFAULT_NAMESPACE:
            message = f'namespaces "{key.name}" is forbidden: this namespace may not be deleted'
            raise errors.Forbidden(403, "Forbidden", message, (), status_errors.details(kind, key.name))
        write = self.begin_delete(kind, key, old, deletion, options)
        if isinstance(write, PendingWrite):
            entry = await write.committed()
            return WriteResult(entry.object, entry.body, removed=write.change.after is None)
        await self.store.settled(kind, key)
        return write

    def begin_delete(
        self, kind: Kind, key: ObjectKey, old: ObjectVersion, deletion: Object, options: WriteOptions
    ) -> PendingWrite | WriteResult:
        """Submit a deletion; return the result at once where it needs no write, as a dry run."""
        request = _request(self.store.kinds, options)
        after = write_path.delete(kind, old.object, deletion, request)
        if kind == kinds.NAMESPACE and after is None:  # it stays until its objects are gone
            after = old.object if is_deleting(old.object) else _terminating(old, request.now)
        if options.dry_run:
            return WriteResult(after or old.object, None, removed=after is None)
        if after == old.object:
            return WriteResult(old.object, old.body)
        return self.store.submit(kind, key, after)

    async def delete_all(
        self,
        kind: Kind,
        keys: Iterable[ObjectKey],
        deletion: Object,
        options: WriteOptions,
    ) -> None:
        """Delete these objects; those that are already gone are skipped."""
        pending: list[PendingWrite] = []
        for key in keys:
            newest = self.store.newest(kind, key)
            if newest is not None:
                write = self.begin_delete(kind, key, newest, deletion, options)
                if isinstance(write, PendingWrite):
                    pending.append(write)
        for write in pending:
            await write.committed()


def _require_version(kind: Kind, key: ObjectKey, body: Object) -> None:
    meta = body.get("metadata")
    if isinstance(meta, dict) and not meta.get("resourceVersion"):
        cause = status_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise status_errors.unprocessable(kind, key.name, [cause])


def _terminating(old: ObjectVersion, now: str) -> Object:
    """Return the namespace as terminating, its state until its objects are gone."""
    meta = {**old.object["metadata"], "deletionTimestamp": now}
    status = {**(old.object.get("status") or {}), "phase": "Terminating"}
    return {**old.object, "metadata": meta, "status": status}
