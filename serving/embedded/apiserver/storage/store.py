"""The objects: in memory for reads, in SQLite for durability. Readers see committed writes only.

Lives on one event loop. A writer reads `newest` (which includes pending writes), decides and calls `submit`
without awaiting in between: that is the compare-and-swap. Writes gather while the disk is busy and share one
transaction; when it fails, they and all writes decided on top of them fail together.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from serving import errors
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.embedded.apiserver.storage.database import Database
from serving.embedded.apiserver.storage.history import ObjectChange, ObjectKey, ObjectVersion, versioned
from serving.objects import Object
from serving.resources.kinds import Kind

log = logging.getLogger(__name__)

_BATCH = 64
"""A commit waits for more writes only while fewer are queued; a few more may join until it begins."""
Listener = Callable[[ObjectChange], None]


def identifier(kind: Kind) -> str:
    """Return the kind's name in the file, which all versions of a kind share."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


class PendingWrite:
    """A write that may not be committed yet."""

    def __init__(self, change: ObjectChange) -> None:
        self.change = change
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has its result once the write is committed, or the error of a commit that failed."""

    async def committed(self) -> ObjectVersion:
        """Wait for the disk; return the stored object, or the last state of a removed one.

        Raises:
            errors.ApiError: nothing was written: 507 where the disk is full, else 500.
        """
        await asyncio.shield(self.done)
        return self.change.after if self.change.after is not None else self.change.deleted()


class ObjectStore:
    """All objects of one machine."""

    def __init__(self, database: Database, stored_kinds: StoredKinds) -> None:
        """Load the objects and the history.

        Raises:
            errors.UserError: the file is damaged.
        """
        self.kinds = stored_kinds
        self._database = database
        self._objects, self.history = database.load()
        self._sorted_keys: dict[str, dict[str | None, Sequence[ObjectKey]]] = {}
        """By kind, then by namespace (None: all namespaces)."""
        self._newest_version = self.history.version
        """resourceVersion of the newest write, which may be pending."""
        self._pending: dict[tuple[str, ObjectKey], PendingWrite] = {}
        """The newest pending write of each object."""
        self._queue: list[PendingWrite] = []
        """Pending writes, in order, that no transaction has taken."""
        self._commits: asyncio.Task[None] | None = None
        """Commits the queue; ends when the queue is empty."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        self._listeners: list[Listener] = []

    @property
    def version(self) -> int:
        """The resourceVersion that readers see."""
        return self.history.version

    def on_change(self, listener: Listener) -> None:
        """Call the listener for every committed change, in order; it must not block or raise."""
        self._listeners.append(listener)

    def get(self, kind: Kind, key: ObjectKey) -> ObjectVersion | None:
        """Return the committed object."""
        return self._objects.get(identifier(kind), {}).get(key)

    def objects(self, kind: Kind) -> Mapping[ObjectKey, ObjectVersion]:
        """Return all committed objects of a kind; do not change the mapping or keep it across an await."""
        return self._objects.get(identifier(kind), {})

    def keys(self, kind: Kind, namespace: str | None) -> Sequence[ObjectKey]:
        """Return the committed keys in order, of one namespace or (None) of all."""
        ident = identifier(kind)
        cached = self._sorted_keys.setdefault(ident, {})
        if namespace not in cached:
            objects = self._objects.get(ident, {})
            cached[namespace] = sorted(k for k in objects if namespace is None or k.namespace == namespace)
        return cached[namespace]

    def newest(self, kind: Kind, key: ObjectKey) -> ObjectVersion | None:
        """Return the object including pending writes; only for deciding on a write."""
        pending = self._pending.get((identifier(kind), key))
        return pending.change.after if pending is not None else self.get(kind, key)

    async def settled(self, kind: Kind, key: ObjectKey) -> None:
        """Wait until the object's pending writes are committed; raises as `PendingWrite.committed` does."""
        pending = self._pending.get((identifier(kind), key))
        if pending is not None:
            await asyncio.shield(pending.done)

    def submit(self, kind: Kind, key: ObjectKey, obj: Object | None) -> PendingWrite:
        """Begin to write the object under the next resourceVersion, or to remove it (None).

        Raises:
            errors.ApiError: 400, the object is not JSON.
        """
        before, version = self.newest(kind, key), self._newest_version + 1
        try:
            after = None if obj is None else ObjectVersion(versioned(obj, version))
        except (TypeError, RecursionError) as error:
            raise errors.ApiError(400, "BadRequest", f"the object cannot be stored: {error}") from error
        write = PendingWrite(ObjectChange(version, identifier(kind), key, before, after))
        self._newest_version = version
        self._pending[write.change.kind, key] = write
        self._queue.append(write)
        if self._commits is None or self._commits.done():
            self._commits = asyncio.create_task(self._commit_queue())
        return write

    async def _commit_queue(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue:
            await self._gather()
            batch, self._queue = self._queue, []
            try:
                self._database.stage([write.change for write in batch])
                await loop.run_in_executor(self._thread, self._database.commit)
            except sqlite3.Error as error:
                self._fail(batch + self._queue, error)
            else:
                self._publish(batch)

    async def _gather(self) -> None:
        """Let requests that have arrived join: a commit costs the same for one write as for many."""
        size = 0
        while size < len(self._queue) < _BATCH:
            size = len(self._queue)
            await asyncio.sleep(0)  # requests that have arrived are read,
            await asyncio.sleep(0)  # and handled up to their write

    def _fail(self, writes: list[PendingWrite], error: sqlite3.Error) -> None:
        """Refuse all pending writes: each was decided, or numbered, on top of those before it."""
        log.error("%d writes failed: %s", len(writes), error)
        self._queue = []
        self._pending.clear()
        self._newest_version = self.version
        is_full = "full" in str(error)  # SQLITE_FULL: "database or disk is full"
        for write in writes:
            if not write.done.done():
                write.done.set_exception(_refused(error, is_full=is_full))
            write.done.exception()  # else asyncio logs the error of a write whose request was cancelled

    def _publish(self, batch: list[PendingWrite]) -> None:
        """Show committed writes to readers and listeners, and end their waits."""
        for write in batch:
            change = write.change
            self._replace(change)
            self.history.append(change)
            if self._pending.get((change.kind, change.key)) is write:
                del self._pending[change.kind, change.key]
            for listener in self._listeners:
                listener(change)
            if not write.done.done():
                write.done.set_result(None)

    def _replace(self, change: ObjectChange) -> None:
        objects = self._objects.setdefault(change.kind, {})
        if change.after is None:
            objects.pop(change.key, None)
        else:
            objects[change.key] = change.after
        if (change.before is None) != (change.after is None):
            self._sorted_keys.pop(change.kind, None)

    async def close(self) -> None:
        """Finish the pending writes and close the file."""
        if self._commits is not None:
            await self._commits
        self._thread.shutdown()
        self._database.close()


def _refused(error: sqlite3.Error, *, is_full: bool) -> errors.ApiError:
    if is_full:
        return errors.ApiError(507, "InsufficientStorage", f"the disk is full, nothing was written: {error}")
    return errors.ApiError(500, "InternalError", f"the store failed, nothing was written: {error}")
