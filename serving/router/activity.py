"""Tells Autoscalers whether there is traffic to what may be at zero, as Envoy counts it: when it begins, and when it ends.

Only while there are such backends is Envoy asked at all. What is written is this gateway's own entry of
`Autoscaler.status.demand`.
"""

import asyncio
import datetime as dt
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving import clock, errors
from serving.kube import Key, Kube, Reconciler, Result
from serving.resources import kinds, names
from serving.router.admin import Admin, Counts
from serving.router.plan import cluster_of
from serving.router.report import NAME
from serving.settings import FIELD_MANAGER_PREFIX, Settings

log = logging.getLogger(__name__)

PAUSE_SHARE = 50.0
"""Pause after a look, in multiples of what it took: Envoy walks the statistics of all clusters for it, on the thread that takes
changes, which is 5 ms for 100 services and 70 ms for 1,000 of two arms."""


@dataclass(frozen=True)
class Traffic:
    """What is known of one Autoscaler's clusters."""

    counts: Counts
    last: dt.datetime
    """When there was a request last."""
    is_busy: bool
    """What has been said."""


def look(
    before: Traffic | None, counts: Counts, now: dt.datetime, quiet: dt.timedelta
) -> tuple[Traffic, bool]:
    """Return what is known by now, and whether it must be said: traffic began, or has been quiet for this long.

    A first look knows nothing of what was, and so begins as quiet from now on; counts that have become less are of an
    Envoy that was started again.
    """
    if before is None:
        return Traffic(counts, now, counts.active > 0), True
    moved = counts.active > 0 or counts.total != before.counts.total
    last = now if moved else before.last
    is_busy = moved or (before.is_busy and now - last < quiet)
    return Traffic(counts, last, is_busy), is_busy != before.is_busy


def scaled_clusters(route: Mapping[str, Any]) -> dict[Key, list[str]]:
    """Return the clusters of a Route that may be at zero, by the Autoscaler that sizes them."""
    namespace = route["metadata"]["namespace"]
    found: dict[Key, list[str]] = {}
    for backend in route["spec"].get("backends") or []:
        if backend.get("onDemand") and backend.get("autoscaler"):
            name = cluster_of(namespace, backend, ()).name
            found.setdefault(Key(namespace, backend["autoscaler"]), []).append(name)
    return found


class Activity:
    """One gateway's traffic to what may be at zero."""

    def __init__(self, kube: Kube, admin: Admin, settings: Settings) -> None:
        self._kube = kube
        self._admin = admin
        self._settings = settings.gateway
        self._manager = f"{FIELD_MANAGER_PREFIX}gateway-{NAME}"
        self._clusters: dict[Key, dict[Key, list[str]]] = {}
        """Of each Route: by Autoscaler, the clusters that it sizes."""
        self._traffic: dict[Key, Traffic] = {}
        self._some = asyncio.Event()
        self._loop = Reconciler("activity", self._write, settings.controllers)

    def know(self, route: Key, clusters: Mapping[Key, list[str]]) -> None:
        """Look at these clusters of a Route from now on, by Autoscaler, and at no others."""
        if clusters:
            self._clusters[route] = dict(clusters)
            self._some.set()
        elif self._clusters.pop(route, None) is not None and not self._clusters:
            self._some.clear()

    async def run(self) -> None:
        """Look and say until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loop.run())
            while True:
                await self._some.wait()
                began = clock.monotonic()
                try:
                    self._look(await self._admin.requests())
                except errors.Unavailable as error:
                    log.info("%s", error)
                took = clock.monotonic() - began
                await asyncio.sleep(max(self._settings.activity_seconds, PAUSE_SHARE * took))

    def _look(self, counted: Mapping[str, Counts]) -> None:
        now, quiet = clock.now(), dt.timedelta(seconds=self._settings.quiet_seconds)
        named: dict[Key, list[str]] = {}
        for clusters in self._clusters.values():
            for autoscaler, found in clusters.items():
                named.setdefault(autoscaler, []).extend(found)
        self._traffic = {key: traffic for key, traffic in self._traffic.items() if key in named}
        for key, found in named.items():
            counts = [counted.get(name, Counts(0, 0)) for name in found]
            sums = Counts(sum(c.total for c in counts), sum(c.active for c in counts))
            self._traffic[key], is_news = look(self._traffic.get(key), sums, now, quiet)
            if is_news:
                self._loop.add(key)

    async def _write(self, key: Key) -> Result | None:
        traffic = self._traffic.get(key)
        if traffic is None:
            return None
        entry: dict[str, Any] = {
            "reporter": f"{names.GATEWAY_REPORTER}{NAME}",
            "inFlight": max(traffic.counts.active, 1) if traffic.is_busy else 0,
            "lastRequestTime": clock.rfc3339_micro(traffic.last),
        }
        named = {"metadata": {"namespace": key.namespace, "name": key.name}}
        await self._kube.apply_status(kinds.AUTOSCALER, named, {"demand": [entry]}, manager=self._manager)
        return None
