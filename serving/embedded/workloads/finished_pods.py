"""Deletes the oldest finished Pods without an owner, as a cluster's Pod garbage collector does.

Otherwise their logs would fill the disk.
"""

import asyncio
import logging
from collections.abc import Iterable

from serving import errors
from serving.embedded.workloads.pods import read
from serving.kube import Informer, Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import pod_phases

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""Between attempts at deletions that failed: the API server restarts within a second."""


def surplus(pods: Iterable[Object], kept: int) -> list[Object]:
    """Return the finished Pods without an owner beyond the newest `kept`, oldest first."""
    unowned = [(read(pod), pod) for pod in pods if not pod["metadata"].get("ownerReferences")]
    finished = [(facts, pod) for facts, pod in unowned if facts.finished and not facts.terminating]
    finished.sort(key=lambda entry: (entry[0].finished_at or entry[0].created, entry[0].name))
    return [pod for _, pod in finished[: max(len(finished) - kept, 0)]]


class FinishedPodCollector:
    """Deletes surplus Pods whenever a Pod finishes; it must exist before the informer runs."""

    def __init__(self, kube: Kube, informer: Informer, kept: int) -> None:
        self._kube, self._informer, self._kept = kube, informer, kept
        self._changed = asyncio.Event()
        informer.on_change(self._pod_changed)

    def _pod_changed(self, _before: Object | None, after: Object | None) -> None:
        if after is not None and pod_phases.has_ended(after):
            self._changed.set()

    async def run(self) -> None:
        """Delete surplus Pods until cancelled; failed deletions are retried."""
        await self._informer.synced.wait()
        while True:
            await self._changed.wait()
            self._changed.clear()
            for pod in surplus(self._informer, self._kept):
                meta = pod["metadata"]
                try:
                    await self._kube.delete(kinds.POD, meta["namespace"], meta["name"], uid=meta["uid"])
                except (errors.Unavailable, errors.ApiError) as error:
                    log.info(
                        "the finished Pod %s/%s was not deleted, retrying: %s",
                        meta["namespace"],
                        meta["name"],
                        error,
                    )
                    self._changed.set()
            if self._changed.is_set():
                await asyncio.sleep(RETRY_SECONDS)
