"""Deletes the oldest finished Pods that nobody owns, as a cluster's Pod garbage collector does."""

import asyncio
import logging

from serving import errors
from serving.embedded.workloads import finished
from serving.kube import Informer, Kube
from serving.objects import Object
from serving.resources import kinds

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class FinishedPods:
    """Looks whenever a Pod has changed; `informer` must not run yet when this is made."""

    def __init__(self, kube: Kube, informer: Informer, kept: int) -> None:
        self._kube, self._informer, self._kept = kube, informer, kept
        self._changed = asyncio.Event()
        informer.on_change(self._note)

    def _note(self, _before: Object | None, after: Object | None) -> None:
        if after is not None and (after.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            self._changed.set()

    async def run(self) -> None:
        """Delete what is too much until cancelled; waits for the API as long as it takes."""
        await self._informer.synced.wait()
        while True:
            await self._changed.wait()
            self._changed.clear()
            for pod in finished.surplus(self._informer, self._kept):
                meta = pod["metadata"]
                try:
                    await self._kube.delete(kinds.POD, meta["namespace"], meta["name"], uid=meta["uid"])
                except (errors.Unavailable, errors.ApiError) as error:
                    log.info("finished pod %s/%s stays for now: %s", meta["namespace"], meta["name"], error)
                    self._changed.set()
            if self._changed.is_set():
                await asyncio.sleep(RETRY_SECONDS)
