"""Reports to each Autoscaler how many requests wait for its target.

A report is written at once when the first request arrives, when none waits any more and when a wake has
ended, and regularly while requests wait. It is the activator's own entry of `Autoscaler.status.demand`; the
Autoscaler controller decides.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from serving import clock, errors
from serving.kube import Key, Kube, Reconciler, Result
from serving.kube.status_withdrawal import withdraw
from serving.resources import kinds, names
from serving.settings import Settings

_REPORT_SECONDS = 1.0
"""Between reports of the number of waiting requests; the first and the last are reported at once."""
_RETRY_SECONDS = 0.1
"""Pause after a report that failed; the API restarts within a second."""


@dataclass(frozen=True)
class WaitingRequests:
    """The waiting requests of one Autoscaler."""

    count: int = 0
    last_request: float = 0.0
    """Arrival in Unix seconds; 0 without a request."""
    last_wake: dict[str, Any] | None = None
    """The last wake of the target, as `wake.report` returns it."""


NONE_WAITING = WaitingRequests()
"""The state of an Autoscaler that has nothing to report."""


class DemandReporter:
    """The reports of one activator."""

    def __init__(
        self,
        kube: Kube,
        read: Callable[[Key], WaitingRequests],
        settings: Settings,
    ) -> None:
        """Args: read: returns the present state of an Autoscaler."""
        self._kube = kube
        self._read = read
        self._reporter = f"{names.ACTIVATOR_REPORTER}{settings.gateway.name}"
        self._manager = f"{names.FIELD_MANAGER_PREFIX}{self._reporter}"
        self._reported: dict[Key, WaitingRequests] = {}
        self._written: dict[Key, int] = {}
        """By Autoscaler, the most waiting requests that its entry in the API may have: a failed write may
        have arrived."""
        self._loop = Reconciler(
            "demand",
            self._write,
            replace(
                settings.controllers,
                backoff_base_seconds=_RETRY_SECONDS,
                backoff_cap_seconds=_RETRY_SECONDS,
            ),
        )

    async def run(self) -> None:
        """Report until cancelled."""
        await self._loop.run()

    async def withdraw(self) -> None:
        """Remove the reports once `run` has ended, those with waiting requests first: this activator holds no
        request any more.
        """
        keys = sorted(self._written, key=lambda key: not self._written[key])
        await withdraw(self._kube, kinds.AUTOSCALER, keys, self._manager)

    def changed(self, key: Key) -> None:
        """Report at once if the first request waits, none waits any more, or a wake has ended."""
        if not key.name:
            return  # a Route that names no Autoscaler: nothing scales this backend
        waiting, reported = self._read(key), self._reported.get(key)
        urgent = (
            reported is None
            or (reported.count > 0) != (waiting.count > 0)
            or reported.last_wake != waiting.last_wake
        )
        # NONE_WAITING, though a report has been written: the backends of its last request are gone, so that
        # the time of that request must leave the report too.
        if urgent or waiting == NONE_WAITING:
            self._loop.add(key)

    async def _write(self, key: Key) -> Result | None:
        waiting = self._read(key)
        again = Result(_REPORT_SECONDS) if waiting.count else None
        if self._reported.get(key) == waiting:
            return again
        entry: dict[str, Any] = {"reporter": self._reporter, "inFlight": waiting.count}
        if waiting.last_request:
            at = dt.datetime.fromtimestamp(waiting.last_request, dt.UTC)
            entry["lastRequestTime"] = clock.rfc3339_micro(at)
        if waiting.last_wake:
            entry["lastWake"] = waiting.last_wake
        autoscaler = {"metadata": {"namespace": key.namespace, "name": key.name}}
        self._written[key] = max(waiting.count, self._written.get(key, 0))
        try:
            await self._kube.apply_status(
                kinds.AUTOSCALER, autoscaler, {"demand": [entry]}, manager=self._manager
            )
        except errors.NotFound:  # deleted, or not there yet
            waiting = NONE_WAITING
            del self._written[key]
        else:
            self._written[key] = waiting.count
        if waiting == NONE_WAITING:
            self._reported.pop(key, None)
        else:
            self._reported[key] = waiting
        return again
