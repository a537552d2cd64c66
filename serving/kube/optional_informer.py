"""Copies of the objects of kinds that an API may have, get and lose while a component runs.

A kind that is not served costs a share of one small request per minute. The reason why a kind cannot be
watched is the obstacle of that kind, and does not concern the other kinds.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable

from serving import errors
from serving.kube import discovery
from serving.kube.connection.client import Kube, WatchEvent
from serving.kube.informer import Informer
from serving.objects import Object
from serving.resources.kinds import Kind, OptionalKind

log = logging.getLogger(__name__)

ASK_SECONDS = 60.0
"""Pause between two requests for the served kinds: the longest delay before a new kind is watched, and before
the next attempt at a kind that must not be read.
"""
RETRY_SECONDS = 1.0
"""Pause after such a request without an answer."""


class _Lost(Exception):
    """The kind is not served any more, or must not be read."""

    def __init__(self, error: errors.ApiError, *, is_in_doubt: bool) -> None:
        """`is_in_doubt` is the one of the informer from now on."""
        super().__init__(str(error))
        self.is_in_doubt = is_in_doubt


class OptionalInformer(Informer):
    """An informer that is synced, and has objects, only while the API serves its kind."""

    def __init__(
        self, kube: Kube, optional: OptionalKind, *, namespace: str | None, keep: Callable[[Object], Object]
    ) -> None:
        """Hold the part of each object that `keep` returns."""
        super().__init__(kube, optional.at(optional.versions[0]), namespace=namespace, keep=keep)
        self.optional = optional
        self.obstacle = ""
        """Why there is no copy; empty while there is one, and before the API's first answer."""
        self.is_in_doubt = True
        """Whether the API's next answer decides if there can be a copy: before the first one, and after a
        watch was refused or had no such path, as where the kind has only another version now."""
        self._availability_handlers: list[Callable[[], None]] = []
        self._watching: asyncio.Task[None] | None = None

    def on_availability(self, handler: Callable[[], None]) -> None:
        """Call `handler()` when all objects have been listed, and when the obstacle or the doubt changes.

        After a list, an object that the copy lacks does not exist; while there is an obstacle, whether it
        exists is unknown. Must be set before `run`.
        """
        self._availability_handlers.append(handler)

    def follow(self, kind: Kind | None, group: asyncio.TaskGroup) -> None:
        """Watch the kind in the version that the API serves now; None stands for no version."""
        is_watched = self._watching is not None and not self._watching.done()
        if kind is None:
            self._stop(f"the API serves no {self.optional}")
        elif not (is_watched and kind is self.kind):
            if is_watched:
                self._stop("")
            self.kind = kind
            self._watching = group.create_task(self.run())

    async def run(self) -> None:
        """List and watch until cancelled, or until the kind is lost."""
        try:
            await super().run()
        except _Lost as lost:
            self._forget(str(lost), is_in_doubt=lost.is_in_doubt)

    def _stop(self, obstacle: str) -> None:
        """End the watch, if one runs, and forget the copy."""
        if self._watching is not None:
            self._watching.cancel()
        self._forget(obstacle, is_in_doubt=not obstacle)
        self._watching = None

    def _forget(self, obstacle: str, *, is_in_doubt: bool) -> None:
        """Drop the copy; `obstacle` is the reason, empty if another version of the kind is watched next."""
        has_new_obstacle = obstacle != self.obstacle
        is_news = has_new_obstacle or is_in_doubt != self.is_in_doubt
        # Most clusters never serve most kinds.
        if obstacle and has_new_obstacle and self._watching is not None:
            log.warning("watch %s: %s", self.optional, obstacle)
        self.obstacle, self.is_in_doubt = obstacle, is_in_doubt
        self.synced.clear()
        for key in list(self.items):
            self._store(key, None)
        if is_news:
            self._call_availability_handlers()

    def _call_availability_handlers(self) -> None:
        for handler in self._availability_handlers:
            handler()

    async def _list(self) -> str:
        try:
            version = await super()._list()
        except errors.NotFound as error:
            raise _Lost(error, is_in_doubt=True) from error
        except errors.Forbidden as error:
            raise _Lost(error, is_in_doubt=False) from error
        if self.obstacle:
            log.info("watch %s: listed", self.optional)
        self.obstacle, self.is_in_doubt = "", False
        self._call_availability_handlers()
        return version

    async def _watch(self, version: str) -> AsyncIterator[WatchEvent]:
        try:
            async for event in super()._watch(version):
                yield event
        except (errors.NotFound, errors.Forbidden) as error:
            raise _Lost(error, is_in_doubt=True) from error


async def run(kube: Kube, informers: Iterable[OptionalInformer]) -> None:
    """Ask every ASK_SECONDS which kinds are served, and let the informers follow, until cancelled."""
    by_kind = {informer.optional: informer for informer in informers}
    async with asyncio.TaskGroup() as group:
        is_logged = False
        while True:
            try:
                served = await discovery.served(kube, by_kind)
            except (errors.ApiError, errors.Unavailable) as error:
                if not is_logged:
                    log.info("the API does not list its kinds: %s", error)
                is_logged, pause = True, RETRY_SECONDS
            else:
                is_logged, pause = False, ASK_SECONDS
                for optional, kind in served.items():
                    by_kind[optional].follow(kind, group)
            await asyncio.sleep(pause)
