"""The queues of slow work on ModelVersions, by the transfers that the work needs.

A version waits in its queue until a worker is free. A slow transfer delays only its own queue: work on this
machine alone never waits for a transfer, and a push never waits for the fetch of a source.
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
"""Names of the queues: of work without a transfer, with transfers to and from the registry of the Model or
the image, and with a fetch of the source."""
_LOCAL_IMAGE = f"{names.LOCAL_REGISTRY}/"
"""Begins references of images that only the store of this machine has."""


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
        settings_of = {LOCAL: settings, PUSHED: slow, FETCHED: slow}
        self._queues = {
            name: Reconciler(f"modelversion-{name}", partial(self._work, name), queue_settings)
            for name, queue_settings in settings_of.items()
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
        # A worker of the key's former queue still works on it. At the end of that work the controller decides
        # on the version again, and adds the key if work remains.
        if key in self._active:
            return None
        self._active.add(key)
        try:
            return await self._run_work(key)
        finally:
            self._active.discard(key)


def queue_of(version: Object, model: Object | None) -> str:
    """Return the queue of a version by its source, and by the registry of its image or its Model."""
    source = version["spec"]["source"]
    if "image" in source or not source.get("uri", FILE).startswith(FILE):
        return FETCHED
    image = (version.get("status") or {}).get("image", "")
    is_in_registry = bool(image) and not image.startswith(_LOCAL_IMAGE)
    has_registry = bool(((model or {}).get("spec") or {}).get("registry"))
    return PUSHED if has_registry or is_in_registry else LOCAL
