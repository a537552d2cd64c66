"""Events off the path of what they tell of: queued here, written one after the other, dropped when too many."""

import asyncio
import logging
from typing import Any, Literal, NamedTuple

from serving import clock
from serving.kube import EventRecorder

log = logging.getLogger(__name__)

LIMIT = 10_000
"""Events waiting; beyond it new ones are dropped (they are for people, and losing one is harmless)."""
HOLD_SECONDS = 0.25
"""An Event is at least so old when it is written: what it tells of is being acted on, by the API and by others, and
that comes first (a forked replica is ready within a quarter of this)."""


class Told(NamedTuple):
    """One thing that happened to an object; `reason` is CamelCase."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


class EventQueue:
    """Takes Events without waiting; `run()` writes them."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._queue: asyncio.Queue[tuple[float, dict[str, Any], Told]] = asyncio.Queue(LIMIT)

    def tell(self, obj: dict[str, Any], told: Told) -> None:
        """Record soon what happened to `obj`."""
        try:
            self._queue.put_nowait((clock.monotonic() + HOLD_SECONDS, obj, told))
        except asyncio.QueueFull:
            log.warning("dropped the event %s: %s", told.reason, told.message)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            due, obj, told = await self._queue.get()
            await asyncio.sleep(max(due - clock.monotonic(), 0.0))
            await self._recorder.emit(obj, told.reason, told.message, told.type)
