"""Held requests, as activators report them in `Autoscaler.status.demand`, between two readings. Pure."""

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
    """Return the number of held requests.

    What activators beside a gateway with an expired Lease have reported is lost. A gateway removes its Lease
    as it ends: a report beside a missing one counts until every request in it must have been answered.

    Args:
        autoscaler: the object.
        live: names of the gateways with a valid Lease.
        expired: names of those whose Lease has expired.
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
    """Yield the entries of activators, with the names of their gateways."""
    for entry in (autoscaler.get("status") or {}).get("demand") or []:
        if entry["reporter"].startswith(names.ACTIVATOR_REPORTER):
            yield entry["reporter"].removeprefix(names.ACTIVATOR_REPORTER), entry


def _is_before(time: str | None, oldest: dt.datetime) -> bool:
    return time is not None and clock.parse(time) < oldest
