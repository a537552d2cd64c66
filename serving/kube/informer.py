"""A local copy of the objects of one kind, kept up to date by list and watch.

The copy may be behind the API by a moment, also behind this process's own writes: `cache` overlays them. The
API refuses a write that is based on an outdated copy (compare-and-swap); the writer repeats the write from a
newer copy.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import NamedTuple

from serving import clock, errors
from serving.kube.connection import answers
from serving.kube.connection.client import Kube, WatchEvent
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


class _Index(NamedTuple):
    """The objects of an informer by some of their values."""

    values: Callable[[Object], Iterable[str]]
    """Returns the values of an object."""
    objects: dict[str, dict[Key, Object]]
    """By value and key."""


Handler = Callable[[Object | None, Object | None], None]
"""Called with (before, after); None stands for an object that does not exist."""

PAUSE_BASE_SECONDS = 0.05
"""First pause before the next watch; it doubles. A restarted API listens after a tenth of a second."""
PAUSE_CAP_SECONDS = 1.0
"""Longest pause: changes wait for it once the API is back."""
REFUSED_PAUSE_CAP_SECONDS = 30.0
"""Longest pause after 401 or 403 before the first list: rights change seldom."""
BUSY_PAUSE_CAP_SECONDS = 30.0
"""Longest pause that a busy server may ask for: a copy that is older would look like a standstill, and one
request in half a minute is no load. A Retry-After can be of a proxy, for a page of maintenance."""
PAUSE_JITTER = 0.5
"""Share of a pause that is random: clients of an API that restarts do not all return at one moment."""
LASTING_SECONDS = 1.0
"""Age from which a watch counts as successful: with `PAUSE_CAP_SECONDS`, a server that ends every watch gets
at most about one request per second."""


class WatchPauses:
    """The pauses between the watches of one informer: none after a watch that lasted, else exponential."""

    def __init__(self) -> None:
        self._next = PAUSE_BASE_SECONDS

    def after(self, lasted: float, *, failed: bool, refused: bool = False) -> float:
        """Return the seconds to wait after a watch.

        Args:
            lasted: seconds from its request to its end.
            failed: whether an error ended it.
            refused: whether that error was 401 or 403, before the first list.
        """
        if lasted >= LASTING_SECONDS:
            self._next = PAUSE_BASE_SECONDS
            if not failed:
                return 0.0
        cap = REFUSED_PAUSE_CAP_SECONDS if refused else PAUSE_CAP_SECONDS
        self._next = min(self._next, cap)
        pause = self._next * random.uniform(1 - PAUSE_JITTER, 1)  # noqa: S311
        self._next = min(self._next * 2, cap)
        return pause


class Informer:
    """Keeps `items`; call `run()` in a task, and `synced.wait()` before reading.

    Objects handed out are shared: callers must not change them.
    """

    def __init__(
        self,
        kube: Kube,
        kind: Kind,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        keep: Callable[[Object], Object] | None = None,
    ) -> None:
        """Hold the part of each object that `keep` returns, or the whole object without `keep`.

        `labels` and `fields` are selectors; without a namespace the objects of all namespaces are held.
        """
        self._kube = kube
        self._keep = keep
        self.kind = kind
        self._labels, self._fields = labels, fields
        self._namespace = namespace
        self._handlers: list[Handler] = []
        self._indexes: dict[str, _Index] = {}
        self.items: dict[Key, Object] = {}
        self.synced = asyncio.Event()
        self._resource_version = 0
        """The newest resourceVersion that this copy includes."""

    def on_change(self, handler: Handler) -> None:
        """Call `handler(before, after)` at every change; must be set before `run`."""
        self._handlers.append(handler)

    def index(self, name: str, values: Callable[[Object], Iterable[str]]) -> None:
        """Keep an index of the objects by the results of `values` for each; must be set before `run`."""
        self._indexes[name] = _Index(values, {})

    def by_index(self, name: str, value: str) -> list[Object]:
        """Return the objects for which the index function gave `value`."""
        return list(self._indexes[name].objects.get(value, {}).values())

    def count(self, name: str, value: str) -> int:
        """Return how many objects `by_index` would return."""
        return len(self._indexes[name].objects.get(value, {}))

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
        """List and watch until cancelled, with back-off after errors and after watches that end early."""
        pauses = WatchPauses()
        version = ""
        while True:
            began = clock.monotonic()
            failed, refused, least_pause = False, False, 0.0
            try:
                if not version:
                    version = await self._list()
                    self.synced.set()
                    began = clock.monotonic()  # a long list is no watch that lasted
                async for event in self._watch(version):
                    version = self._take(event)
                ended = "the server ended it"
            except errors.Gone as error:
                version = ""
                ended = str(error)
            except (errors.Unavailable, errors.ApiError) as error:
                failed = True
                ended = str(error)
                # Rights that the copy was made with come back soon: an API that restarts knows none at first.
                refused = isinstance(error, errors.Forbidden) and not self.synced.is_set()
                if isinstance(error, errors.Busy):
                    least_pause = min(error.retry_after, BUSY_PAUSE_CAP_SECONDS)
                if isinstance(error, errors.Unreadable):
                    log.warning("%s; listing again", error)
                    version = ""
            lasted = clock.monotonic() - began
            if pause := max(pauses.after(lasted, failed=failed, refused=refused), least_pause):
                log.info("watch %s: %s; again in %.2f s", self.kind.plural, ended, pause)
                await asyncio.sleep(pause)

    def _watch(self, version: str) -> AsyncIterator[WatchEvent]:
        return self._kube.watch(self.kind, self._namespace, version, labels=self._labels, fields=self._fields)

    def _take(self, event: WatchEvent) -> str:
        """Bring the copy up to date with an event; return its version.

        Raises:
            errors.Unreadable: the event has another shape than the API's; the copy is unchanged.
        """
        with answers.shape_checked(f"watch {self.kind.plural}"):
            version = event.object["metadata"]["resourceVersion"]
            number = int(version)
        key = None if event.type == "BOOKMARK" else self._key(event.object)
        self._resource_version = number  # before the handlers, which may ask `has_seen`
        if key is not None:
            self._store(key, None if event.type == "DELETED" else self._part(event.object))
        return str(version)

    def _key(self, obj: Object) -> Key:
        """Return the key of an object of a response.

        Raises:
            errors.Unreadable: it has no metadata of an object.
        """
        with answers.shape_checked(self.kind.plural):
            key = Key.of(obj)
            if not all(isinstance(text, str) for text in (*key, obj["metadata"]["resourceVersion"])):
                raise TypeError("namespace, name and resourceVersion must be strings")
        return key

    async def _list(self) -> str:
        """Replace the copy by a list of the objects, of which `Kube.list` keeps parts; return its version.

        Raises:
            errors.Unreadable: the list has another shape than the API's; the copy is unchanged.
        """
        listing = await self._kube.list(
            self.kind, self._namespace, labels=self._labels, fields=self._fields, keep=self._part
        )
        with answers.shape_checked(f"list {self.kind.plural}"):
            self._resource_version = int(listing.resource_version)
        listed = {Key.of(item): item for item in listing.items}
        for key in [key for key in self.items if key not in listed]:
            self._store(key, None)
        for key, item in listed.items():
            before = self.items.get(key)
            if before is None or before["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                self._store(key, item)
        return listing.resource_version

    def _part(self, obj: Object) -> Object:
        """Return what the copy holds of an object of a response.

        Raises:
            errors.Unreadable: it has no metadata of an object.
        """
        self._key(obj)
        return obj if self._keep is None else self._keep(obj)

    def _store(self, key: Key, after: Object | None) -> None:
        """Put an object into the copy and the indexes, or remove it (None), and call the handlers."""
        before = self.items.get(key)
        # All values first: a bug in an index function must not leave a part of the indexes changed.
        changes = [
            (objects, tuple(values(before) if before else ()), tuple(values(after) if after else ()))
            for values, objects in self._indexes.values()
        ]
        for objects, old, new in changes:
            for value in old:
                objects.get(value, {}).pop(key, None)
            for value in new:
                objects.setdefault(value, {})[key] = after  # type: ignore[assignment]
        if after is None:
            self.items.pop(key, None)
        else:
            self.items[key] = after
        if before is not None or after is not None:
            self._notify(key, before, after)

    def _notify(self, key: Key, before: Object | None, after: Object | None) -> None:
        for handler in self._handlers:
            try:
                handler(before, after)
            except Exception:  # a bug in one handler must not hide the change from the others
                log.exception("handler of %s %s", self.kind.plural, key)
