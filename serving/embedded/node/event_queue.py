"""Events off the path of what they tell of: queued here, written one after the other, dropped when too many."""

import asyncio
import logging
from typing import Any, Literal, NamedTuple

from serving.kube import Recorder

log = logging.getLogger(__name__)

LIMIT = 10_000
"""Events waiting; beyond it new ones are dropped (they are for people, and losing one is harmless)."""


class Told(NamedTuple):
    """One thing that happened to an object; `reason` is CamelCase."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


class EventQueue:
    """Takes Events without waiting; `run()` writes them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._queue: asyncio.Queue[tuple[dict[str, Any], Told]] = asyncio.Queue(LIMIT)

    def tell(self, obj: dict[str, Any], told: Told) -> None:
        """Record soon what happened to `obj`."""
        try:
            self._queue.put_nowait((obj, told))
        except asyncio.QueueFull:
            log.warning("dropped the event %s: %s", told.reason, told.message)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            obj, told = await self._queue.get()
            await self._recorder.emit(obj, told.reason, told.message, told.type)
