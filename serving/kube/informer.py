"""A local copy of the objects of one kind, kept up to date by list and watch.

The copy may be behind the API by a moment, also behind this process's own writes: `cache` has the copies with
these. A write over another one is refused (compare-and-swap) and repeated from a newer copy.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import NamedTuple

from serving import errors
from serving.kube.client import Kube, WatchEvent
from serving.objects import Object
from serving.resources.kinds import Kind

log = logging.getLogger(__name__)


class Key(NamedTuple):
    """Namespace and name of an object whose kind is known."""

    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Object) -> "Key":
        """Return the object's key."""
        meta = obj["metadata"]
        return cls(meta.get("namespace", ""), meta["name"])

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


Handler = Callable[[Object | None, Object | None], None]
"""Called with (before, after); None stands for an object that does not exist."""


class Informer:
    """Keeps `items`; call `run()` in a task, and `synced.wait()` before reading.

    Objects handed out are shared: callers must not change them.
    """

    def __init__(
        self, kube: Kube, kind: Kind, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> None:
        self._kube = kube
        self.kind = kind
        self._labels, self._fields = labels, fields
        self._namespace = namespace
        self._handlers: list[Handler] = []
        self._indexes: dict[str, tuple[Callable[[Object], Iterable[str]], dict[str, dict[Key, Object]]]] = {}
        self.items: dict[Key, Object] = {}
        self.synced = asyncio.Event()
        self._resource_version = 0
        """This copy is the API's as of this version."""

    def on_change(self, handler: Handler) -> None:
        """Call `handler(before, after)` at every change; must be set before `run`."""
        self._handlers.append(handler)

    def index(self, name: str, values: Callable[[Object], Iterable[str]]) -> None:
        """Keep an index of the objects by some of their values; must be set before `run`."""
        self._indexes[name] = (values, {})

    def by_index(self, name: str, value: str) -> list[Object]:
        """Return the objects for which the index function gave `value`."""
        return list(self._indexes[name][1].get(value, {}).values())

    def count(self, name: str, value: str) -> int:
        """Return how many objects `by_index` would return."""
        return len(self._indexes[name][1].get(value, {}))

    def get(self, namespace: str, name: str) -> Object | None:
        """Return the cached object, or None."""
        return self.items.get(Key(namespace, name))

    def has_seen(self, obj: Object) -> bool:
        """Whether this copy is as new as an object of the API: it has the object, or a later state.

        resourceVersions of one kind are compared as numbers, which the embedded API promises, and clusters do
        by KEP-5504.
        """
        return self._resource_version >= int(obj["metadata"]["resourceVersion"])

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self.items.values()))

    async def run(self) -> None:
        """List and watch until cancelled; errors are retried with back-off."""
        delay = 0.05
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                    self.synced.set()
                async for event in self._watch(version):
                    delay = 0.05
                    version = event.object["metadata"]["resourceVersion"]
                    self._resource_version = int(version)
                    if event.type == "DELETED":
                        self._store(Key.of(event.object), None)
                    elif event.type != "BOOKMARK":
                        self._store(Key.of(event.object), event.object)
            except errors.Gone:
                version = ""
            except (errors.Unavailable, errors.ApiError) as error:
                log.info("watch %s: %s; again in %.2f s", self.kind.plural, error, delay)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 1.0)
            except (KeyError, ValueError) as error:
                log.warning("watch %s: malformed response: %r; listing again", self.kind.plural, error)
                version = ""
                await asyncio.sleep(delay)
                delay = min(delay * 2, 1.0)

    def _watch(self, version: str) -> AsyncIterator[WatchEvent]:
        return self._kube.watch(self.kind, self._namespace, version, labels=self._labels, fields=self._fields)

    async def _list(self) -> str:
        listing = await self._kube.list(self.kind, self._namespace, labels=self._labels, fields=self._fields)
        self._resource_version = int(listing.resource_version)
        listed = {Key.of(item): item for item in listing.items}
        for key in [key for key in self.items if key not in listed]:
            self._store(key, None)
        for key, item in listed.items():
            before = self.items.get(key)
            if before is None or before["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                self._store(key, item)
        return listing.resource_version

    def _store(self, key: Key, after: Object | None) -> None:
        before = self.items.get(key)
        for values, table in self._indexes.values():
            for value in values(before) if before else ():
                table.get(value, {}).pop(key, None)
            for value in values(after) if after else ():
                table.setdefault(value, {})[key] = after  # type: ignore[assignment]
        if after is None:
            self.items.pop(key, None)
        else:
            self.items[key] = after
        if before is not None or after is not None:
            for handler in self._handlers:
                handler(before, after)
