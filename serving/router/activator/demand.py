"""Tells Autoscalers how many requests wait: at once where there were none, then now and then, and when there are none.

It writes its own entry of `Autoscaler.status.demand`, and nothing else; who reads it decides.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from serving import clock, errors
from serving.kube import Key, Kube, Reconciler, Result
from serving.resources import kinds, names
from serving.router.route_status import NAME
from serving.settings import FIELD_MANAGER_PREFIX, ActivatorSettings, ControllerSettings

REPORTER = f"{names.ACTIVATOR_REPORTER}{NAME}"


@dataclass(frozen=True)
class Waiting:
    """What is known of one Autoscaler's requests."""

    count: int = 0
    last_request: float = 0.0
    """Unix seconds."""
    last_wake: dict[str, Any] | None = None


NOBODY = Waiting()
"""Once this is said, nothing is remembered."""


class Demand:
    """Reports of one activator."""

    def __init__(
        self, kube: Kube, read: Callable[[Key], Waiting], settings: ActivatorSettings,
        controllers: ControllerSettings,
    ) -> None:  # fmt: skip
        """Args: read: what is so now of an Autoscaler."""
        self._kube = kube
        self._read = read
        self._settings = settings
        self._manager = f"{FIELD_MANAGER_PREFIX}{REPORTER}"
        self._said: dict[Key, Waiting] = {}
        retry = settings.report_retry_seconds
        self._loop = Reconciler(
            "demand", self._write, replace(controllers, backoff_base_seconds=retry, backoff_cap_seconds=retry)
        )

    async def run(self) -> None:
        """Report until cancelled."""
        await self._loop.run()

    def changed(self, key: Key) -> None:
        """Look again: now where somebody begins to wait, or nobody does any more, or something was learned."""
        if not key.name:
            return  # a Route that names no Autoscaler: nobody sizes this backend
        now, said = self._read(key), self._said.get(key)
        news = said is None or (said.count > 0) != (now.count > 0) or said.last_wake != now.last_wake
        if news or now == NOBODY:
            self._loop.add(key)

    async def _write(self, key: Key) -> Result | None:
        now = self._read(key)
        again = Result(self._settings.report_seconds) if now.count else None
        if self._said.get(key) == now:
            return again
        entry: dict[str, Any] = {"reporter": REPORTER, "inFlight": now.count}
        if now.last_request:
            at = dt.datetime.fromtimestamp(now.last_request, dt.UTC)
            entry["lastRequestTime"] = clock.rfc3339_micro(at)
        if now.last_wake:
            entry["lastWake"] = now.last_wake
        named = {"metadata": {"namespace": key.namespace, "name": key.name}}
        try:
            await self._kube.apply_status(kinds.AUTOSCALER, named, {"demand": [entry]}, manager=self._manager)
        except errors.NotFound:  # deleted, or not there yet
            now = NOBODY
        if now == NOBODY:
            self._said.pop(key, None)
        else:
            self._said[key] = now
        return again
