"""Writes one Pod's status to the API: the newest one only, and for as long as it takes.

What can wait does so for a moment: a Pod that is ready within tens of milliseconds has one write, and that one is not
behind others that say less.
"""

import asyncio
import contextlib
import logging
from typing import Any

from serving import errors
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
RETRY_CAP_SECONDS = 5.0
SETTLE_SECONDS = 0.15
"""For which a status that only says that a start is on its way waits for what comes of it; forked replicas are ready by
then, and people do not see a difference."""


class StatusWriter:
    """Keeps the wish; `run()` fulfils it. A Pod's processes never wait for the API."""

    def __init__(self, kube: Kube, pod: Object) -> None:
        self._kube = kube
        self._pod = pod
        self.latest: dict[str, Any] = dict(pod.get("status") or {})
        self._dirty = asyncio.Event()
        self._pressing = asyncio.Event()

    def say(self, status: dict[str, Any], *, soon: bool = True) -> None:
        """Write this, unless it is what was said last: now, or (not `soon`) when it has settled."""
        if status != self.latest:
            self.latest = status
            self._dirty.set()
            if soon:
                self._pressing.set()

    async def run(self) -> None:
        """Write until cancelled."""
        delay = RETRY_SECONDS
        while True:
            await self._dirty.wait()
            with contextlib.suppress(TimeoutError):
                # Not `wait_for`, here and in all of the node: until Python 3.12 it may lose a cancellation (cpython#86296).
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._pressing.wait()
            self._dirty.clear()
            self._pressing.clear()
            try:
                await self._kube.apply_status(kinds.POD, self._pod, self.latest)
                delay = RETRY_SECONDS
            except errors.NotFound:
                log.debug("pod %s is gone", self._pod["metadata"]["name"])
            except (errors.Unavailable, errors.ApiError) as error:
                log.info("status of pod %s: %s; again in %.1f s", self._pod["metadata"]["name"], error, delay)
                await asyncio.sleep(delay)
                delay = min(delay * 2, RETRY_CAP_SECONDS)
                self._dirty.set()
                self._pressing.set()
