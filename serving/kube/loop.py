"""A work queue of keys and its workers; one worker at a time reconciles a key.

A key that is added many times is reconciled once, and once more if it is added during that. A reconcile that
fails is repeated with exponential back-off (k8s.io/client-go/util/workqueue).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from serving import errors
from serving.backoff import backoff_seconds
from serving.kube.informer import BUSY_PAUSE_CAP_SECONDS, Informer
from serving.settings import ControllerSettings

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
"""A key: usually namespace and name; with the kind where objects of several kinds are reconciled alike."""


@dataclass(frozen=True)
class Result:
    """When to reconcile again: after `requeue_after` seconds, or only at the next change."""

    requeue_after: float | None = None


class Reconciler(Generic[K]):
    """Runs `reconcile(key)` for every key added; it reads the present state, never the content of a watch
    event.
    """

    def __init__(
        self, name: str, reconcile: Callable[[K], Awaitable[Result | None]], settings: ControllerSettings
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._settings = settings
        self._queue: asyncio.Queue[K] = asyncio.Queue()
        self._queued: set[K] = set()
        self._active: set[K] = set()
        self._again: set[K] = set()
        """Active keys that were added meanwhile."""
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def add(self, key: K) -> None:
        """Reconcile the key soon."""
        if key in self._active:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Reconcile the key after a delay, or at its earlier timer if it has one.

        A reconcile that begins sooner cancels the timer, and asks for another if it still needs one.
        """
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def run(self, *informers: Informer) -> None:
        """Wait until the informers are synced, then work until cancelled."""
        for informer in informers:
            await informer.synced.wait()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._settings.workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._queued.discard(key)
            self._active.add(key)
            if (timer := self._timers.pop(key, None)) is not None:
                timer.cancel()
            try:
                await self._run_once(key)
            finally:
                self._active.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)

    async def _run_once(self, key: K) -> None:
        try:
            result = await self._reconcile(key)
        except errors.Temporary as error:
            self._retry(key, error, error.retry_after)
        except errors.Busy as error:
            self._retry(key, error, at_least=min(error.retry_after, BUSY_PAUSE_CAP_SECONDS))
        except (
            errors.Conflict,
            errors.NotFound,
            errors.Forbidden,
            errors.Internal,
            errors.Unavailable,
        ) as error:
            self._retry(key, error)  # Forbidden: a missing permission, or a namespace that terminates
        except Exception as error:  # a bug must not stop the other keys
            log.exception("%s %s", self.name, key)
            self._retry(key, error)
        else:
            self._failures.pop(key, None)
            if result is not None and result.requeue_after is not None:
                self.add_after(key, result.requeue_after)

    def _retry(self, key: K, error: Exception, after: float | None = None, *, at_least: float = 0.0) -> None:
        """Reconcile the key again after `after` seconds.

        If `after` is None, the key waits for the longer one of the back-off and `at_least` seconds.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if after is None:
            base, cap = self._settings.backoff_base_seconds, self._settings.backoff_cap_seconds
            after = max(backoff_seconds(failures, base, cap), at_least)
        log.info("%s %s: %s; again in %.2f s", self.name, key, error, after)
        self.add_after(key, after)
