"""Emits Events in the background, from a queue."""

import asyncio
import logging

from serving import clock
from serving.kube import EventRecorder
from serving.objects import Object
from serving.resources.kubernetes.events import EventToEmit

log = logging.getLogger(__name__)

LIMIT = 10_000
"""The most Events in the queue; further ones are dropped, as they are for people only."""
HOLD_SECONDS = 0.25
"""Delay before an Event is written, so that the writes of the change itself come first (a forked replica is
ready within a quarter of this)."""


class EventQueue:
    """Takes Events without waiting; `run()` writes them."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._queue: asyncio.Queue[tuple[float, Object, EventToEmit]] = asyncio.Queue(LIMIT)

    def add(self, obj: Object, event: EventToEmit) -> None:
        """Emit an Event about `obj` soon."""
        try:
            self._queue.put_nowait((clock.monotonic() + HOLD_SECONDS, obj, event))
        except asyncio.QueueFull:
            log.warning("dropped the event %s: %s", event.reason, event.message)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            due, obj, event = await self._queue.get()
            await asyncio.sleep(max(due - clock.monotonic(), 0.0))
            await self._recorder.emit(obj, event.reason, event.message, event.type)
