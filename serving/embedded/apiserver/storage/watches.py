"""Watches: each watcher has a position in the shared history and is woken when its kind changes.

New changes are not queued for a watcher: a slow one costs the lines of its last read of the history, and one
chunk in its connection's buffer. A watcher that falls too far behind or does not read is disconnected, and
lists again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import orjson
from starlette.types import Receive, Scope, Send

from serving import clock, errors
from serving.embedded.apiserver.status_errors import to_status
from serving.embedded.apiserver.storage.history import Event, Matches, ObjectChange, ObjectVersion, event_for
from serving.embedded.apiserver.storage.store import ObjectStore, identifier
from serving.objects import Object
from serving.resources.kinds import Kind
from serving.settings import ApiSettings

log = logging.getLogger(__name__)

Render = Callable[[ObjectVersion], bytes]
SendChunk = Callable[[bytes | None], Awaitable[None]]
"""Sends a chunk of the body; None ends the body."""
CONNECTION = "slipway.connection"
"""ASGI extension: `abort` cuts the connection, `is_paused` returns whether a send would wait."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends the initial events (`sendInitialEvents`)."""
_CHUNK_BYTES = 256 * 1024
"""A chunk ends with the line that takes it beyond this size."""


class Hub:
    """Wakes the watchers of a kind; ends them all when the server stops."""

    def __init__(self, store: ObjectStore) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        """By kind, one event for each watcher."""
        self.stopping = False
        store.on_change(self._wake)

    def _wake(self, change: ObjectChange) -> None:
        for event in self._waiting.get(change.kind, ()):
            event.set()

    def join(self, kind: Kind) -> asyncio.Event:
        """Return an event that is set whenever the kind changes."""
        event = asyncio.Event()
        self._waiting.setdefault(identifier(kind), set()).add(event)
        return event

    def leave(self, kind: Kind, event: asyncio.Event) -> None:
        """Undo `join`."""
        self._waiting[identifier(kind)].discard(event)

    def stop(self) -> None:
        """End all watches."""
        self.stopping = True
        for events in self._waiting.values():
            for event in events:
                event.set()


@dataclass(frozen=True)
class Watch:
    """The parameters of a client's watch."""

    kind: Kind
    namespace: str | None
    """None: all namespaces."""
    matches: Matches | None
    """The selectors combined; None without selectors."""
    version: int
    """The watch delivers every change after this version."""
    initial: tuple[ObjectVersion, ...] = ()
    """Sent first, as ADDED: the state at `version`, for clients that did not list."""
    initial_end: bool = False
    """Whether a bookmark marks the end of the initial events."""
    bookmarks: bool = False
    seconds: float | None = None
    """The server ends the watch after this time; None for no limit."""


class WatchResponse:
    """An ASGI response that sends events until the client disconnects, the time is up or the server stops."""

    def __init__(
        self, store: ObjectStore, hub: Hub, settings: ApiSettings, watch: Watch, render: Render
    ) -> None:
        self._store, self._hub, self._settings = store, hub, settings
        self._watch, self._render = watch, render
        self._position = watch.version
        """The resourceVersion up to which the changes have been sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; `receive` reports when the client disconnects."""
        assert scope["type"] == "http"
        connection = scope["extensions"][CONNECTION]
        woken = self._hub.join(self._watch.kind)
        disconnected = asyncio.ensure_future(_until_disconnected(receive, woken))
        try:
            headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-cache, private")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._follow(
                woken, disconnected, _sender(send, self._settings.stalled_seconds, connection["is_paused"])
            )
        except TimeoutError:
            log.info("cut off a watcher of %s that does not read", self._watch.kind.plural)
            connection["abort"]()
        finally:
            disconnected.cancel()
            self._hub.leave(self._watch.kind, woken)

    async def _follow(
        self, woken: asyncio.Event, disconnected: asyncio.Future[None], send: SendChunk
    ) -> None:
        """Send the initial events, then the changes, until the watch ends; `woken` is set to look again."""
        end = None if self._watch.seconds is None else clock.monotonic() + self._watch.seconds
        await send(b"")  # by ASGI, headers may wait for the first part of the body
        for chunk in _chunks(self._initial_events()):
            await send(chunk)
        bookmark = clock.monotonic() + self._settings.bookmark_seconds
        while not disconnected.done() and not self._hub.stopping:
            woken.clear()
            try:
                lines = self._lines()
            except errors.Gone as error:
                await send(line("ERROR", orjson.dumps(to_status(error))))
                break
            for chunk in _chunks(lines):
                await send(chunk)
            now = clock.monotonic()
            if end is not None and now >= end:
                break
            if now >= bookmark:
                bookmark = now + self._settings.bookmark_seconds
                if self._watch.bookmarks:
                    await send(self._bookmark({}))
            next_wake = bookmark if end is None else min(bookmark, end)
            # If this kind changed again while the chunks were sent, `_wait` would return at once, after the
            # cost of a timer.
            is_behind = woken.is_set() and self._position != self._store.version
            if not is_behind:
                await _wait(woken, next_wake - now)
        await send(None)

    def _initial_events(self) -> Iterator[bytes]:
        for entry in self._watch.initial:
            yield line("ADDED", self._render(entry))
        if self._watch.initial_end:
            yield self._bookmark({INITIAL_EVENTS_END: "true"})

    def _lines(self) -> Iterator[bytes]:
        """Return the lines of the changes since the last call; each is made when it is read.

        Raises:
            errors.Gone: the watcher was too slow.
        """
        changes = self._store.history.since(identifier(self._watch.kind), self._position)
        # A client may begin at any version of the history; only later reads show how fast it is.
        if len(changes) > self._settings.watch_queue and self._position != self._watch.version:
            message = f"too slow: {len(changes)} events behind"
            raise errors.Gone(410, "Expired", message)
        self._position = self._store.version
        events = (self._event(change) for change in changes)
        return (line(event.type, self._render(event.entry)) for event in events if event is not None)

    def _event(self, change: ObjectChange) -> Event | None:
        if self._watch.namespace is not None and change.key.namespace != self._watch.namespace:
            return None
        return event_for(change, self._watch.matches or _everything)

    def _bookmark(self, annotations: dict[str, str]) -> bytes:
        meta: Object = {"resourceVersion": str(self._position), "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        kind = self._watch.kind
        return line(
            "BOOKMARK", orjson.dumps({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta})
        )


def _everything(_: Object) -> bool:
    return True


def line(type_: str, body: bytes) -> bytes:
    """Return one event of a watch as it is sent."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), body)


def _chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Join lines into chunks of moderate size: fewer sends, and no copy of a whole list in memory."""
    chunk: list[bytes] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line)
        if size > _CHUNK_BYTES:
            yield b"".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield b"".join(chunk)


def _sender(send: Send, stalled_seconds: float, is_paused: Callable[[], bool]) -> SendChunk:
    """Return a `SendChunk` that raises TimeoutError if the buffer remains full for `stalled_seconds`."""

    async def send_chunk(body: bytes | None) -> None:
        message = {"type": "http.response.body", "body": body or b"", "more_body": body is not None}
        if is_paused():
            async with asyncio.timeout(stalled_seconds):
                await send(message)
        else:
            await send(message)  # does not wait, and a timer would cost as much as the send

    return send_chunk


async def _wait(woken: asyncio.Event, seconds: float) -> None:
    """Wait until `woken` is set, and set it after this time."""
    timer = asyncio.get_running_loop().call_later(max(seconds, 0.0), woken.set)
    try:
        await woken.wait()
    finally:
        timer.cancel()


async def _until_disconnected(receive: Receive, woken: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    woken.set()
