"""Writes one Pod's status to the API: the newest one only, and for as long as it takes."""

import asyncio
import logging
from typing import Any

from serving import errors
from serving.kube import Kube
from serving.kube.client import Object
from serving.resources import kinds

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
RETRY_CAP_SECONDS = 5.0


class StatusWriter:
    """Keeps the wish; `run()` fulfils it. A Pod's processes never wait for the API."""

    def __init__(self, kube: Kube, pod: Object) -> None:
        self._kube = kube
        self._pod = pod
        self.latest: dict[str, Any] = dict(pod.get("status") or {})
        self._dirty = asyncio.Event()

    def say(self, status: dict[str, Any]) -> None:
        """Write this soon, unless it is what was said last."""
        if status != self.latest:
            self.latest = status
            self._dirty.set()

    async def run(self) -> None:
        """Write until cancelled."""
        delay = RETRY_SECONDS
        while True:
            await self._dirty.wait()
            self._dirty.clear()
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
