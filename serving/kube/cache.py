"""The informers' copies, overlaid with this process's own writes until the watch has shown these writes.

A controller that decides on a copy without its last write repeats that write: it creates another Pod, reports
a transition twice, or computes the next ring from an outdated one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from serving import clock
from serving.kube.informer import Handler, Informer, Key
from serving.objects import Object, is_deleting
from serving.resources.kinds import Kind

OWNER = "owner"
"""Index of the informers: the uid of the controlling owner."""
LIFETIME_SECONDS = 30.0
"""Age at which a write that no watch has shown is forgotten: its object existed only between two lists."""


def controlling_owner_uids(obj: Object) -> Iterable[str]:
    """Index function: uid of the controlling owner."""
    return [o["uid"] for o in obj["metadata"].get("ownerReferences") or [] if o.get("controller")]


@dataclass(frozen=True)
class _OwnWrite:
    """The object after a write, or the terminating object after a deletion."""

    obj: Object
    is_deletion: bool
    expires_at: float
    """In monotonic seconds."""


class Cache:
    """Informers by kind, which the caller runs. Returned objects are shared: callers must not change them."""

    def __init__(self, *informers: Informer) -> None:
        self._informers = {informer.kind: informer for informer in informers}
        self._writes: dict[tuple[Kind, Key], _OwnWrite] = {}
        self._by_owner: dict[tuple[Kind, str], set[Key]] = {}
        self._on_news: dict[Kind, Handler] = {}
        for informer in informers:
            informer.index(OWNER, controlling_owner_uids)
            informer.on_change(partial(self._changed, informer.kind))

    def on_news(self, kind: Kind, handler: Handler) -> None:
        """Call `handler(before, after)` at every change that is not the echo of an own write.

        Must be set before the informers run.
        """
        self._on_news[kind] = handler

    def remember_write(self, kind: Kind, obj: Object) -> None:
        """Remember the API's answer to a create, an update or a patch."""
        if not self._informers[kind].has_seen(obj):
            self._remember(kind, obj, is_deletion=False)

    def remember_delete(self, kind: Kind, obj: Object) -> None:
        """Show the object as terminating, as the API has accepted its graceful deletion."""
        current = self.get(kind, *Key.of(obj))
        if current is not None and not _is_deleted_by(current, obj):
            meta = {**current["metadata"], "deletionTimestamp": clock.rfc3339(clock.now())}
            self._remember(kind, {**current, "metadata": meta}, is_deletion=True)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return the newest known state of an object, or None."""
        write = self._pending(kind, Key(namespace, name))
        return write.obj if write is not None else self._informers[kind].get(namespace, name)

    def owned(self, kind: Kind, owner: Object) -> dict[str, Object]:
        """Return the objects that `owner` controls, by name."""
        uid = owner["metadata"]["uid"]
        objects = {o["metadata"]["name"]: o for o in self._informers[kind].by_index(OWNER, uid)}
        objects.update((key.name, write.obj) for key, write in self._pending_of(kind, uid))
        return objects

    def is_behind(self, kind: Kind, owner: Object) -> bool:
        """Whether the watch has yet to show a write to an object that `owner` controls."""
        return bool(self._pending_of(kind, owner["metadata"]["uid"]))

    def _pending_of(self, kind: Kind, owner_uid: str) -> list[tuple[Key, _OwnWrite]]:
        keys = list(self._by_owner.get((kind, owner_uid), ()))
        return [(key, write) for key in keys if (write := self._pending(kind, key)) is not None]

    def _remember(self, kind: Kind, obj: Object, *, is_deletion: bool) -> None:
        key = Key.of(obj)
        if (kind, key) in self._writes:
            self._forget(kind, key)
        self._writes[kind, key] = _OwnWrite(obj, is_deletion, clock.monotonic() + LIFETIME_SECONDS)
        for uid in controlling_owner_uids(obj):
            self._by_owner.setdefault((kind, uid), set()).add(key)

    def _pending(self, kind: Kind, key: Key) -> _OwnWrite | None:
        """Return the own write that the watch has yet to show, and forget one that it has shown."""
        write = self._writes.get((kind, key))
        if write is None:
            return None
        if write.expires_at < clock.monotonic() or self._is_shown(kind, key, write):
            self._forget(kind, key)
            return None
        return write

    def _is_shown(self, kind: Kind, key: Key, write: _OwnWrite) -> bool:
        informer = self._informers[kind]
        if not write.is_deletion:
            return informer.has_seen(write.obj)
        # An absent object shows no deletion: the watch may not have shown its creation yet. `_changed`
        # notices a removal.
        current = informer.items.get(key)
        return current is not None and _is_deleted_by(current, write.obj)

    def _changed(self, kind: Kind, before: Object | None, after: Object | None) -> None:
        obj = after or before
        if obj is None:
            return
        key = Key.of(obj)
        write = self._writes.get((kind, key))
        is_echo = False
        if write is not None:
            is_echo = after is not None and not write.is_deletion and _version(after) == _version(write.obj)
            if self._is_shown(kind, key, write) or (after is None and write.is_deletion):
                self._forget(kind, key)
        if kind in self._on_news and not is_echo:
            self._on_news[kind](before, after)

    def _forget(self, kind: Kind, key: Key) -> None:
        write = self._writes.pop((kind, key))
        for uid in controlling_owner_uids(write.obj):
            keys = self._by_owner.get((kind, uid), set())
            keys.discard(key)
            if not keys:
                self._by_owner.pop((kind, uid), None)


def _is_deleted_by(current: Object, deleted: Object) -> bool:
    """Whether `current` shows the deletion of `deleted`: it terminates, or is a new object of that name."""
    return is_deleting(current) or bool(current["metadata"]["uid"] != deleted["metadata"]["uid"])


def _version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])
