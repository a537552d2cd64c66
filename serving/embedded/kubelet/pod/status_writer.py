"""Writes one Pod's status to the API: only the newest, with retries.

A status that is not urgent is delayed, so that a Pod that is ready within tens of milliseconds costs one
write.
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
"""Delay of the status of a start under way; forked replicas are ready within it."""


class StatusWriter:
    """Holds the status for `run()` to write, so that a Pod's processes never wait for the API."""

    def __init__(self, kube: Kube, pod: Object) -> None:
        self._kube = kube
        self._pod = pod
        self.latest: dict[str, Any] = dict(pod.get("status") or {})
        """The newest status, which the API may not have yet."""
        self._is_unwritten = asyncio.Event()
        self._is_urgent = asyncio.Event()

    def set(self, status: dict[str, Any], *, urgent: bool = True) -> None:
        """Write a status that differs from the latest: at once, or after `SETTLE_SECONDS` if not `urgent`."""
        if status != self.latest:
            self.latest = status
            self._is_unwritten.set()
            if urgent:
                self._is_urgent.set()

    async def run(self) -> None:
        """Write until cancelled, or until another Pod has the name."""
        delay = RETRY_SECONDS
        while True:
            await self._is_unwritten.wait()
            with contextlib.suppress(TimeoutError):
                # Not `wait_for`, anywhere in the kubelet: until Python 3.12 it may lose a cancellation
                # (cpython#86296).
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._is_urgent.wait()
            self._is_unwritten.clear()
            self._is_urgent.clear()
            try:
                await self._kube.apply_status(kinds.POD, self._pod, self.latest)
                delay = RETRY_SECONDS
            except errors.NotFound:
                log.debug("pod %s is gone", self._pod["metadata"]["name"])
            except errors.Conflict as error:
                log.info("status of pod %s: %s", self._pod["metadata"]["name"], error)
                return
            except (errors.Unavailable, errors.ApiError) as error:
                log.info("status of pod %s: %s; again in %.1f s", self._pod["metadata"]["name"], error, delay)
                await asyncio.sleep(delay)
                delay = min(delay * 2, RETRY_CAP_SECONDS)
                self._is_unwritten.set()
                self._is_urgent.set()
