"""The queues of slow work on ModelVersions, by whose network it waits for.

A version waits in its queue until it has a worker, so a slow registry delays only its own queue: work on this
machine alone never waits for a transfer, and a push never for an image from elsewhere.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from serving.controllers.models.image_builder import FILE
from serving.kube import Key, Reconciler, Result
from serving.kube.informer import Informer
from serving.objects import Object
from serving.resources import names
from serving.settings import ControllerSettings

LOCAL, PUSHED, FETCHED = "local", "pushed", "fetched"


class BuildQueues:
    """Runs `work(key)` for each key added, by one worker at a time.

    `queue_of` returns the queue that a key belongs to now: it may change while the key waits.
    """

    def __init__(
        self,
        work: Callable[[Key], Awaitable[Result | None]],
        queue_of: Callable[[Key], str],
        settings: ControllerSettings,
    ) -> None:
        self._run_work = work
        self._queue_of = queue_of
        self._active: set[Key] = set()
        slow = replace(settings, workers=settings.transfers)
        workers = {LOCAL: settings, PUSHED: slow, FETCHED: slow}
        self._queues = {
            name: Reconciler(f"modelversion-{name}", partial(self._work, name), own)
            for name, own in workers.items()
        }

    def add(self, key: Key) -> None:
        """Work on the key soon."""
        self._queues[self._queue_of(key)].add(key)

    async def run(self, *informers: Informer) -> None:
        """Wait until the informers are synced, then work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for queue in self._queues.values():
                group.create_task(queue.run(*informers))

    async def _work(self, queue: str, key: Key) -> Result | None:
        if queue != self._queue_of(key):
            self.add(key)
            return None
        if (
            key in self._active
        ):  # by a worker of the queue that it has left; the controller adds it again then
            return None
        self._active.add(key)
        try:
            return await self._run_work(key)
        finally:
            self._active.discard(key)


def queue_of(version: Object, model: Object | None) -> str:
    """Return the queue of a version: whether it is fetched, or pushed, or needs no network."""
    source = version["spec"]["source"]
    if "image" in source or not source.get("uri", FILE).startswith(FILE):
        return FETCHED
    image = (version.get("status") or {}).get("image") or f"{names.LOCAL_REGISTRY}/"
    has_registry = bool(((model or {}).get("spec") or {}).get("registry"))
    return PUSHED if has_registry or not image.startswith(f"{names.LOCAL_REGISTRY}/") else LOCAL
