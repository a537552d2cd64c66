"""Reads that see one's own writes: the informers' caches, and over them what was written a moment ago.

Without it a controller that is woken before its own write has come back by the watch would write again, and
would compute the next ring from the one before. It decides nothing.
"""

from collections.abc import Iterable
from functools import partial

from serving import clock
from serving.kube import Informer, Key
from serving.kube.informer import Handler
from serving.objects import Object
from serving.resources.kinds import Kind

OWNER = "owner"
LIFETIME = 10.0
"""Seconds after which an own write is forgotten even if no watch has shown it (it was deleted in between)."""


def owner_uids(obj: Object) -> Iterable[str]:
    """Index function: uid of the controlling owner."""
    return [o["uid"] for o in obj["metadata"].get("ownerReferences") or [] if o.get("controller")]


class Cache:
    """Informers by kind, with own writes laid over them until they come back."""

    def __init__(self, *informers: Informer) -> None:
        self._informers = {informer.kind: informer for informer in informers}
        self._written: dict[tuple[Kind, Key], tuple[Object, float]] = {}
        self._by_owner: dict[tuple[Kind, str], set[Key]] = {}
        self._on_news: dict[Kind, Handler] = {}
        for informer in informers:
            informer.on_change(partial(self._seen, informer.kind))

    def on_news(self, kind: Kind, handler: Handler) -> None:
        """Call `handler(before, after)` at every change but the echo of an own write; must be set before it runs."""
        self._on_news[kind] = handler

    def wrote(self, kind: Kind, obj: Object) -> None:
        """Remember the API's answer to a write."""
        cached = self._informers[kind].get(*Key.of(obj))
        if cached is None or _version(cached) < _version(obj):
            self._written[kind, Key.of(obj)] = (obj, clock.monotonic() + LIFETIME)
            for uid in owner_uids(obj):
                self._by_owner.setdefault((kind, uid), set()).add(Key.of(obj))

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return the newest known state of an object, or None."""
        key = Key(namespace, name)
        mine = self._mine(kind, key)
        return mine if mine is not None else self._informers[kind].get(namespace, name)

    def owned(self, kind: Kind, owner: Object) -> dict[str, Object]:
        """Return the objects that `owner` controls, by name; the kind's informer must have the index OWNER."""
        uid = owner["metadata"]["uid"]
        found = {o["metadata"]["name"]: o for o in self._informers[kind].by_index(OWNER, uid)}
        for key in list(self._by_owner.get((kind, uid), ())):
            mine = self._mine(kind, key)
            if mine is not None:
                found[key.name] = mine
        return found

    def _mine(self, kind: Kind, key: Key) -> Object | None:
        mine = self._written.get((kind, key))
        if mine is None:
            return None
        if mine[1] < clock.monotonic():
            self._forget(kind, key)
            return None
        return mine[0]

    def _seen(self, kind: Kind, before: Object | None, after: Object | None) -> None:
        obj = after or before
        if obj is None:
            return
        mine = self._written.get((kind, Key.of(obj)))
        if mine is not None and (after is None or _version(after) >= _version(mine[0])):
            self._forget(kind, Key.of(obj))
        is_echo = mine is not None and after is not None and _version(after) == _version(mine[0])
        if kind in self._on_news and not is_echo:
            self._on_news[kind](before, after)

    def _forget(self, kind: Kind, key: Key) -> None:
        mine, _ = self._written.pop((kind, key))
        for uid in owner_uids(mine):
            keys = self._by_owner.get((kind, uid), set())
            keys.discard(key)
            if not keys:
                self._by_owner.pop((kind, uid), None)


def _version(obj: Object) -> int:
    """Return resourceVersion as a number; a cluster's are comparable too (KEP-5504)."""
    return int(obj["metadata"]["resourceVersion"])
