"""Counts the held requests that activators report in `Autoscaler.status.demand`, between readings. Pure."""

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from serving import clock
from serving.resources import names


def count(
    autoscaler: Mapping[str, Any],
    live: frozenset[str],
    expired: frozenset[str],
    now: dt.datetime,
    hold_seconds: float,
) -> int:
    """Return the number of held requests, by the Lease of the gateway that each activator belongs to.

    With a valid Lease a report counts. With an expired Lease its requests are lost with the gateway. A
    gateway deletes its Lease when it ends: without a Lease a report counts for the longest time of a hold
    after its last request.

    Args:
        autoscaler: the Autoscaler object.
        live: names of the gateways with a valid Lease.
        expired: names of the gateways with an expired Lease.
        now: the present time.
        hold_seconds: longest time for which an activator holds a request.
    """
    oldest = now - dt.timedelta(seconds=hold_seconds)
    return sum(
        int(entry.get("inFlight", 0))
        for gateway, entry in _entries(autoscaler)
        if gateway in live
        or (gateway not in expired and not _is_before(entry.get("lastRequestTime"), oldest))
    )


def _entries(autoscaler: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the entries of `status.demand` by activators, each after the name of its gateway."""
    for entry in (autoscaler.get("status") or {}).get("demand") or []:
        if entry["reporter"].startswith(names.ACTIVATOR_REPORTER):
            yield entry["reporter"].removeprefix(names.ACTIVATOR_REPORTER), entry


def _is_before(time: str | None, oldest: dt.datetime) -> bool:
    return time is not None and clock.parse(time) < oldest
